/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/safetensors-index.h"
#include "engine/checkpoint/parse/safetensors.h"
#include "tests/unit/checkpoint/parse/torch-expect.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <jansson.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096, EACH_MS = 5000 };

static struct {
	int files, wrong;
} so_far;

static bool ends(const char *path, const char *suffix)
{
	size_t n = strlen(path), m = strlen(suffix);

	return n >= m && !strcmp(path + n - m, suffix);
}

static int open_path(const char *folder, const char *name, size_t size, struct blob *b,
		     struct parse_error *why)
{
	char path[PATH_BYTES];
	int fd;

	snprintf(path, sizeof(path), "%s%s%.*s", folder, size ? "/" : "", (int)size, name);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return parse_error_set(why, -errno, "%s: %s", path, strerror(errno));
	return blob_of_file(fd, b, why);
}

/* ---- one file ---- */

static int read_index(const struct blob *b, const char *folder, struct parse_error *why)
{
	struct safetensors_index x;
	struct blob part;
	int rc = safetensors_index_open(&x, b, why);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < x.nfiles && !rc; i++) {
		rc = open_path(folder, x.files[i], strlen(x.files[i]), &part, why);
		if (!rc)
			close(part.fd);
	}
	safetensors_index_close(&x);
	return rc;
}

static int read_chunk(const struct pickle *p, uint32_t info, const char *folder,
		      struct parse_error *why)
{
	size_t size = 0;
	const char *name = pickle_text(p, pickle_field(p, info, "relative_path"), &size);
	struct blob file, part;
	struct torchfile f;
	int64_t at = -1, length = -1;
	int rc;

	pickle_int(p, pickle_field(p, info, "offset"), &at);
	pickle_int(p, pickle_field(p, info, "length"), &length);
	rc = open_path(folder, name ? name : "", size, &file, why);
	if (rc)
		return rc;
	rc = blob_part(&file, (uint64_t)at, (uint64_t)length, &part, why);
	if (!rc)
		rc = torchfile_open(&f, &part, why);
	if (!rc)
		torchfile_close(&f);
	close(file.fd);
	return rc;
}

static int read_metadata(const struct blob *b, const char *folder, struct parse_error *why)
{
	struct pickle *p;
	uint32_t data;
	int rc = pickle_read(&p, b, 0, b->size, why);

	if (rc)
		return rc;
	data = pickle_field(p, pickle_root(p), "storage_data");
	if (!pickle_count(p, data))
		rc = parse_error_set(why, -EBADMSG, "no storage_data");
	for (uint32_t i = 0; i < pickle_count(p, data) && !rc; i++)
		rc = read_chunk(p, pickle_value(p, data, i), folder, why);
	pickle_free(p);
	return rc;
}

static int read_safetensors(const struct blob *b, struct parse_error *why)
{
	struct safetensors s;
	int rc = safetensors_open(&s, b, why);

	if (!rc)
		safetensors_close(&s);
	return rc;
}

static int read_torchfile(const struct blob *b, struct parse_error *why)
{
	struct torchfile f;
	int rc = torchfile_open(&f, b, why);

	if (!rc)
		torchfile_close(&f);
	return rc;
}

static int read_file(const char *path, struct parse_error *why)
{
	char copy[PATH_BYTES];
	struct blob b;
	int rc = open_path(path, "", 0, &b, why);

	if (rc)
		return rc;
	snprintf(copy, sizeof(copy), "%s", path);
	if (ends(path, ".index.json"))
		rc = read_index(&b, dirname(copy), why);
	else if (ends(path, ".metadata"))
		rc = read_metadata(&b, dirname(copy), why);
	else if (ends(path, ".safetensors"))
		rc = read_safetensors(&b, why);
	else
		rc = read_torchfile(&b, why);
	close(b.fd);
	return rc;
}

static void judge(const char *path, bool accept, const char *reason)
{
	struct parse_error why = { "" };
	uint64_t from = monotonic_ms();
	int rc = read_file(path, &why);

	so_far.files++;
	if (accept == !rc && !rc == !*why.why && monotonic_ms() - from < EACH_MS)
		return;
	so_far.wrong++;
	printf("%s: %s (%s), but %s after %" PRIu64 " ms: %s\n", path, accept ? "good" : "bad",
	       reason, rc ? strerror(-rc) : "taken", monotonic_ms() - from, why.why);
}

/* ---- many ---- */

static void judge_entry(const char *folder, const json_t *entry)
{
	const char *name = json_string_value(json_object_get(entry, "path"));
	const char *level = json_string_value(json_object_get(entry, "level"));
	bool is_folder = !strchr(name, '.');
	char path[PATH_BYTES];

	if (level && !strcmp(level, "ckpt"))
		return;
	snprintf(path, sizeof(path), "%s/%s%s", folder, name,
		 is_folder ? "/model.safetensors.index.json" : "");
	judge(path, !strcmp(json_string_value(json_object_get(entry, "expect")), "accept"),
	      json_string_value(json_object_get(entry, "why")));
}

static void judge_manifest(const char *folder)
{
	char path[PATH_BYTES];
	json_t *all, *entry;
	size_t i;

	snprintf(path, sizeof(path), "%s/manifest.json", folder);
	all = json_load_file(path, 0, NULL);
	so_far.wrong += !all;
	json_array_foreach (all, i, entry)
		judge_entry(folder, entry);
	json_decref(all);
}

static int judge_genuine(const char *path, const struct stat *st, int type, struct FTW *at)
{
	if (type == FTW_F && !strstr(path, "/bad/") && !strstr(path, "/st/") &&
	    (ends(path, ".pt") || ends(path, ".metadata")))
		judge(path, true, "genuine");
	return 0;
}

int check_oracle(const char *folder)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/bad", folder);
	judge_manifest(path);
	snprintf(path, sizeof(path), "%s/st", folder);
	judge_manifest(path);
	nftw(folder, judge_genuine, 16, FTW_PHYS);
	printf("%d files of %s\n", so_far.files, folder);
	return so_far.wrong + !so_far.files;
}
