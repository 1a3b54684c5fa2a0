/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Files that are written as torch.save does, read by the reader of checkpoints, which is strict
 * where two readers of a zip archive could disagree.
 */

#include "engine/base/base.h"
#include "engine/checkpoint/parse/torchfile.h"
#include "fs/torch-file.h"
#include "fs/torch-pickle.h"
#include "tests/run-suite.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static struct torchfile f;
static struct parse_error why;
static char *pickle, *text;
static size_t size;
static uint64_t head, tail;

static FILE *begin(void)
{
	FILE *out = open_memstream(&pickle, &size);

	torch_pickle_begin(out);
	return out;
}

static void end(FILE *out, const void *bytes, uint64_t nbytes)
{
	torch_pickle_end(out);
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_int_eq(torch_file_make(pickle, size, bytes, nbytes, &text, &head, &tail), 0);
	free(pickle);
}

/* Opens head, a hole or the given bytes, tail; where the bytes are, they begin at 64 * n. */
static void open_file(const void *bytes, uint64_t nbytes)
{
	struct blob b = { .fd = memfd_create("torch", MFD_CLOEXEC),
			  .size = head + nbytes + tail };
	const char *behind = text + head + (bytes ? nbytes : 0);

	ck_assert_uint_eq(head % 64, 0);
	ck_assert_int_eq(ftruncate(b.fd, (off_t)b.size), 0);
	ck_assert_int_eq(pwrite(b.fd, text, head, 0), (ssize_t)head);
	ck_assert_int_eq(pwrite(b.fd, behind, tail, (off_t)(head + nbytes)), (ssize_t)tail);
	if (bytes)
		ck_assert_int_eq(pwrite(b.fd, text + head, nbytes, (off_t)head),
				 (ssize_t)nbytes);
	ck_assert_msg(!torchfile_open(&f, &b, &why), "%s", why.why);
}

static void close_file(void)
{
	close(f.blob.fd);
	torchfile_close(&f);
	free(text);
}

/* Writes and opens a tensor of a hole, and checks that it is what was meant. */
static void check_tensor(enum frag_dtype dtype, const uint64_t *shape, uint32_t ndim)
{
	uint64_t numel = 1;
	struct torchfile_tensor x;
	FILE *out = begin();

	for (uint32_t d = 0; d < ndim; d++)
		numel *= shape[d];
	torch_pickle_tensor(out, dtype, shape, ndim);
	end(out, NULL, numel * frag_dtype_size(dtype));
	open_file(NULL, numel * frag_dtype_size(dtype));
	ck_assert_int_eq(torchfile_tensor(&f, pickle_root(f.pickle), &x, &why), 0);
	ck_assert_int_eq(x.tensor.dtype, dtype);
	ck_assert_uint_eq(x.tensor.ndim, ndim);
	ck_assert_uint_eq(x.tensor.numel, numel);
	for (uint32_t d = 0; d < ndim; d++)
		ck_assert_uint_eq(x.tensor.shape[d], shape[d]);
	ck_assert(x.tensor.contiguous);
	if (numel)
		ck_assert_uint_eq(x.at, head);
	close_file();
}

START_TEST(tensors_are_what_they_were)
{
	static const uint64_t shape[] = { 3, 5, 2 }, empty[] = { 4, 0, 3 };

	for (enum frag_dtype dtype = 1; frag_dtype_size(dtype); dtype++)
		if (torch_pickle_storage(dtype))
			check_tensor(dtype, shape, 3);
	check_tensor(FRAG_F32, NULL, 0);
	check_tensor(FRAG_F32, empty, 3);
}
END_TEST

START_TEST(four_gigabytes_need_other_fields)
{
	static const uint64_t sizes[] = { UINT32_MAX - 1, UINT32_MAX, UINT64_C(1) << 32,
					  UINT64_C(3) << 40 };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		check_tensor(FRAG_U8, &sizes[i], 1);
}
END_TEST

START_TEST(values_are_what_they_were)
{
	static const uint64_t shape[] = { 7, UINT64_C(1) << 33 };
	const struct pickle *p;
	uint32_t root, list;
	int64_t whole;
	double number;
	FILE *out = begin();

	torch_pickle_dict(out);
	torch_pickle_text(out, "lr");
	torch_pickle_number(out, 1e-3);
	torch_pickle_text(out, "step");
	torch_pickle_number(out, 0x1p40 + 1);
	torch_pickle_text(out, "betas");
	torch_pickle_pair(out, 0.5, -0x1p-1074);
	torch_pickle_text(out, "list");
	torch_pickle_list(out);
	torch_pickle_number(out, -3);
	torch_pickle_number(out, -0x1p1023);
	torch_pickle_size(out, shape, 2);
	torch_pickle_list_end(out);
	torch_pickle_text(out, "none");
	torch_pickle_dict(out);
	torch_pickle_dict_end(out);
	torch_pickle_dict_end(out);
	end(out, "abcd", 4);
	open_file("abcd", 4);
	p = f.pickle;
	root = pickle_root(p);
	ck_assert_uint_eq(pickle_count(p, root), 5);
	ck_assert(pickle_number(p, pickle_get(p, root, "lr"), &number) && number == 1e-3);
	ck_assert(pickle_int(p, pickle_get(p, root, "step"), &whole));
	ck_assert_int_eq(whole, (INT64_C(1) << 40) + 1);
	list = pickle_get(p, root, "betas");
	ck_assert_int_eq(pickle_kind(p, list), PICKLE_TUPLE);
	ck_assert(pickle_number(p, pickle_item(p, list, 0), &number) && number == 0.5);
	ck_assert(pickle_number(p, pickle_item(p, list, 1), &number) && number == -0x1p-1074);
	list = pickle_get(p, root, "list");
	ck_assert(pickle_int(p, pickle_item(p, list, 0), &whole) && whole == -3);
	ck_assert(pickle_number(p, pickle_item(p, list, 1), &number) && number == -0x1p1023);
	list = pickle_item(p, list, 2);
	ck_assert_uint_eq(pickle_count(p, list), 2);
	ck_assert(pickle_int(p, pickle_item(p, list, 1), &whole) && whole == INT64_C(1) << 33);
	ck_assert_uint_eq(pickle_count(p, pickle_get(p, root, "none")), 0);
	close_file();
}
END_TEST

/* Python refuses a pickle with other bytes. */
START_TEST(texts_are_utf8)
{
	const struct pickle *p;
	uint32_t root;
	int64_t whole;
	FILE *out = begin();

	torch_pickle_dict(out);
	torch_pickle_text(out, "w\xc3\xa9");
	torch_pickle_number(out, 1);
	torch_pickle_text(out, "w\xff");
	torch_pickle_number(out, 2);
	torch_pickle_dict_end(out);
	end(out, "abcd", 4);
	open_file("abcd", 4);
	p = f.pickle;
	root = pickle_root(p);
	ck_assert_uint_eq(pickle_count(p, root), 2);
	ck_assert(pickle_int(p, pickle_get(p, root, "w\xc3\xa9"), &whole) && whole == 1);
	ck_assert(pickle_int(p, pickle_get(p, root, "w%FF"), &whole) && whole == 2);
	close_file();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("torch-file");
	TCase *t = tcase_create("torch-file");

	tcase_add_test(t, tensors_are_what_they_were);
	tcase_add_test(t, four_gigabytes_need_other_fields);
	tcase_add_test(t, values_are_what_they_were);
	tcase_add_test(t, texts_are_utf8);
	return run_suite(s, t);
}
