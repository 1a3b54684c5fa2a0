/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/wire.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>

static struct wire_header header_of(uint16_t type)
{
	return (struct wire_header){ .magic = WIRE_MAGIC,
				     .version = WIRE_VERSION,
				     .type = type,
				     .request = 7,
				     .rank = 3 };
}

static const void *open_size(const struct wire_header *header, size_t size, int *status,
			     size_t *tail)
{
	uint8_t *message =
		calloc(1, size ? size : 1); /* exactly as large: a sanitizer sees more */
	struct wire_header opened;
	const void *rest = NULL, *body;

	memcpy(message, header, size < sizeof(*header) ? size : sizeof(*header));
	body = wire_open(message, size, &opened, &rest, tail, status);
	if (body)
		ck_assert_ptr_eq(rest, (const uint8_t *)body + wire_body_size(header->type));
	free(message);
	return body;
}

START_TEST(every_type_needs_its_whole_body)
{
	for (uint16_t type = 1; type < WIRE_TYPES; type++) {
		struct wire_header header = header_of(type);
		size_t whole = sizeof(header) + wire_body_size(type), tail = 99;
		int status;

		for (size_t size = 0; size < whole; size++) {
			ck_assert_ptr_null(open_size(&header, size, &status, &tail));
			ck_assert_int_eq(status, -EBADMSG);
		}
		ck_assert_ptr_nonnull(open_size(&header, whole + 5, &status, &tail));
		ck_assert_int_eq(status, 0);
		ck_assert_uint_eq(tail, 5);
	}
}
END_TEST

START_TEST(what_is_none_of_ours_is_refused_and_another_version_told_apart)
{
	struct wire_header header = header_of(WIRE_PING);
	size_t tail;
	int status;

	header.magic++;
	ck_assert_ptr_null(open_size(&header, sizeof(header), &status, &tail));
	ck_assert_int_eq(status, -EBADMSG);
	header = header_of(WIRE_PING);
	header.version++;
	ck_assert_ptr_null(open_size(&header, sizeof(header), &status, &tail));
	ck_assert_int_eq(status, -EPROTO);
	header = header_of(0);
	ck_assert_ptr_null(open_size(&header, 4096, &status, &tail));
	header = header_of(WIRE_TYPES);
	ck_assert_ptr_null(open_size(&header, 4096, &status, &tail));
	ck_assert_int_eq(status, -EBADMSG);
}
END_TEST

START_TEST(what_was_put_is_got_and_the_end_is_never_passed)
{
	struct wire_writer w = { 0 };
	struct wire_reader r;

	wire_put_u8(&w, 0xfe);
	wire_put_u32(&w, 0x89abcdef);
	wire_put_u64(&w, 0x0123456789abcdef);
	wire_put_bytes(&w, "text", 4);
	wire_put_bytes(&w, NULL, 0);
	ck_assert(!w.bad);
	for (size_t size = 0; size <= w.size; size++) {
		uint8_t *cut = malloc(size ? size : 1);

		memcpy(cut, w.data, size);
		r = (struct wire_reader){ .at = cut, .end = cut + size };
		ck_assert_uint_eq(wire_get_u8(&r), size >= 1 ? 0xfe : 0);
		ck_assert_uint_eq(wire_get_u32(&r), size >= 5 ? 0x89abcdef : 0);
		ck_assert_uint_eq(wire_get_u64(&r), size >= 13 ? 0x0123456789abcdef : 0);
		ck_assert(!wire_get_bytes(&r, 4) == (size < 17));
		ck_assert(r.bad == (size < 17));
		ck_assert(r.at <= r.end);
		free(cut);
	}
	free(w.data);
}
END_TEST

START_TEST(a_length_beyond_all_memory_is_refused)
{
	uint8_t bytes[8] = { 0 };
	struct wire_reader r = { .at = bytes, .end = bytes + sizeof(bytes) };

	ck_assert_ptr_null(wire_get_bytes(&r, UINT64_MAX));
	ck_assert(r.bad);
	ck_assert_uint_eq(wire_get_u8(&r), 0); /* and nothing after it */
}
END_TEST

START_TEST(a_text_must_end_in_its_field)
{
	char field[4] = { 'a', 'b', 'c', 'd' };

	ck_assert(!wire_text_ok(field, sizeof(field)));
	field[3] = '\0';
	ck_assert(wire_text_ok(field, sizeof(field)));
}
END_TEST

START_TEST(a_hash_differs_by_one_bit_and_is_never_0)
{
	uint8_t bytes[64] = { 0 };
	uint64_t hash = wire_hash(bytes, sizeof(bytes));

	ck_assert_uint_ne(wire_hash(bytes, 0), 0);
	for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_uint_ne(wire_hash(bytes, sizeof(bytes)), hash);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}
END_TEST

START_TEST(the_control_page_as_numbers)
{
	struct control_page page = { .cookie = { 1, 2 } };
	struct wire_control control;
	double scale;

	atomic_store(&page.sequence, 3);
	atomic_store(&page.registry_epoch, 4);
	atomic_store(&page.grads, 5);
	atomic_store(&page.phase, CONTROL_STEP);
	atomic_store(&page.loss_scale, 65536.0);
	atomic_store(&page.generation_ns, 6);
	atomic_store(&page.boundary_ns, 7);
	atomic_store(&page.interval_ns, 8);
	wire_control_from_page(&control, &page);
	ck_assert_uint_eq(control.cookie[1], 2);
	ck_assert_uint_eq(control.sequence, 3);
	ck_assert_uint_eq(control.registry_epoch, 4);
	ck_assert_uint_eq(control.grads, 5);
	ck_assert_uint_eq(control.phase, CONTROL_STEP);
	ck_assert_uint_eq(control.generation_ns, 6);
	ck_assert_uint_eq(control.boundary_ns, 7);
	ck_assert_uint_eq(control.interval_ns, 8);
	memcpy(&scale, &control.loss_scale, sizeof(scale));
	ck_assert(scale == 65536.0);
}
END_TEST

START_TEST(a_status_is_zero_or_an_errno)
{
	ck_assert_int_eq(wire_status(0), 0);
	ck_assert_int_eq(wire_status(-ENOENT), -ENOENT);
	ck_assert_int_eq(wire_status(1), -EIO);
	ck_assert_int_eq(wire_status(-4096), -EIO);
	ck_assert_int_eq(wire_status(INT32_MIN), -EIO);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("wire");
	TCase *t = tcase_create("wire");

	tcase_add_test(t, every_type_needs_its_whole_body);
	tcase_add_test(t, what_is_none_of_ours_is_refused_and_another_version_told_apart);
	tcase_add_test(t, what_was_put_is_got_and_the_end_is_never_passed);
	tcase_add_test(t, a_length_beyond_all_memory_is_refused);
	tcase_add_test(t, a_text_must_end_in_its_field);
	tcase_add_test(t, a_hash_differs_by_one_bit_and_is_never_0);
	tcase_add_test(t, the_control_page_as_numbers);
	tcase_add_test(t, a_status_is_zero_or_an_errno);
	return run_suite(s, t);
}
