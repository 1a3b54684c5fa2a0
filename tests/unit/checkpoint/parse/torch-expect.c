/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/checkpoint/parse/torch-expect.h"

#include <check.h>
#include <ctype.h>
#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

/* ---- paths ---- */

static uint32_t step(const struct pickle *p, uint32_t node, const char *key)
{
	uint32_t found = pickle_get(p, node, key);
	uint32_t i = (uint32_t)atoi(key);

	if (!found && isdigit((unsigned char)*key))
		found = pickle_item(p, node, i);
	return found || !isdigit((unsigned char)*key) ? found : pickle_get_int(p, node, i);
}

static uint32_t at_path(const struct pickle *p, const char *path)
{
	char *copy = strdup(path), *rest = copy, *key;
	uint32_t node = pickle_root(p);

	while (strcmp(path, ".") && (key = strsep(&rest, "/")))
		node = step(p, node, key);
	free(copy);
	return node;
}

/* ---- tensors ---- */

static void numbers_text(const uint64_t *numbers, uint32_t n, char *out)
{
	strcpy(out, n ? "" : "-");
	for (uint32_t i = 0; i < n; i++)
		out += sprintf(out, i ? ",%" PRIu64 : "%" PRIu64, numbers[i]);
}

/* The i-th element in the order of the shape. */
static uint64_t place_of(const struct torchfile_tensor *t, uint64_t i)
{
	uint64_t at = t->at;

	for (uint32_t d = t->tensor.ndim; d--; i /= t->tensor.shape[d])
		at += i % t->tensor.shape[d] * t->tensor.stride[d] *
		      frag_dtype_size(t->tensor.dtype);
	return at;
}

static void values_text(const struct torchfile *f, const struct torchfile_tensor *t, char *out)
{
	size_t size = frag_dtype_size(t->tensor.dtype);
	uint8_t element[16];

	strcpy(out, t->tensor.numel ? "" : "-");
	for (uint64_t i = 0; i < t->tensor.numel; i++) {
		ck_assert_int_eq(pread(f->blob.fd, element, size, (off_t)place_of(t, i)),
				 (ssize_t)size);
		for (size_t k = 0; k < size; k++)
			out += sprintf(out, "%02x", element[k]);
	}
}

static void describe_tensor(const struct torchfile *f, uint32_t node, char *out)
{
	char shape[400], stride[400], values[LINE_BYTES / 2];
	struct torchfile_tensor t;
	struct parse_error why = { "" };

	ck_assert_msg(!torchfile_tensor(f, node, &t, &why), "%s", why.why);
	numbers_text(t.tensor.shape, t.tensor.ndim, shape);
	numbers_text(t.tensor.stride, t.tensor.ndim, stride);
	values_text(f, &t, values);
	ck_assert(!t.tensor.numel || f->legacy == !t.entry);
	sprintf(out, "%s %s %s %d %s", frag_dtype_name(t.tensor.dtype), shape, stride,
		t.tensor.contiguous, values);
}

/* ---- lines ---- */

static void describe(const struct torchfile *f, uint32_t node, char *out)
{
	const struct pickle *p = f->pickle;
	const char *text;
	size_t size = 0;
	int64_t integer;
	double real;

	if (pickle_kind(p, node) == PICKLE_TENSOR)
		describe_tensor(f, node, out);
	else if (pickle_int(p, node, &integer))
		sprintf(out, "%" PRId64, integer);
	else if (pickle_number(p, node, &real))
		sprintf(out, "%g", real);
	else {
		node = pickle_callee(p, node) ? pickle_name(p, pickle_callee(p, node)) : node;
		text = pickle_text(p, node, &size);
		sprintf(out, "%.*s", (int)size, text ? text : "");
	}
}

static void compare_line(const struct torchfile *f, char *line)
{
	char is[LINE_BYTES], *rest = line;
	const char *kind = strsep(&rest, " "), *path = strsep(&rest, " ");
	uint32_t node = at_path(f->pickle, path);

	ck_assert_msg(node != PICKLE_NOTHING, "%s %s is not there", kind, path);
	describe(f, node, is);
	ck_assert_msg(!strcmp(is, rest), "%s %s is\n%s, not\n%s", kind, path, is, rest);
}

static int compare_lines(const struct torchfile *f, FILE *expect)
{
	char line[LINE_BYTES];
	int n = 0;

	while (fgets(line, sizeof(line), expect)) {
		line[strcspn(line, "\n")] = '\0';
		if (*line == '#')
			continue;
		compare_line(f, line);
		n++;
	}
	return n;
}

int check_expected(const char *folder, const char *name)
{
	char path[4096];
	struct parse_error why = { "" };
	struct torchfile f;
	struct blob b;
	FILE *expect;
	int fd, n;

	snprintf(path, sizeof(path), "%s/%s.pt", folder, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%s/%s.expect", folder, name);
	expect = fopen(path, "r");
	if (fd < 0 || !expect)
		err(1, "%s", path);
	ck_assert_msg(!blob_of_file(fd, &b, &why) && !torchfile_open(&f, &b, &why), "%s: %s",
		      name, why.why);
	n = compare_lines(&f, expect);
	torchfile_close(&f);
	fclose(expect);
	close(fd);
	return n;
}
