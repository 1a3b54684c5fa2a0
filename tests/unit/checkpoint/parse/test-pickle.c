/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/pickle.h"
#include "engine/checkpoint/parse/torch-unsupported.h"
#include "tests/run-suite.h"
#include "tests/unit/memfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct pickle *p;
static struct parse_error why;

static int read_bytes(const void *data, size_t size)
{
	struct blob b = memfile(data, size);
	int rc;

	pickle_free(p);
	p = NULL;
	memset(&why, 0, sizeof(why));
	rc = pickle_read(&p, &b, 0, size, &why);
	close(b.fd);
	ck_assert_int_eq(!rc, !*why.why);
	return rc;
}

/* A literal may have NULs in it. */
#define read(literal) read_bytes(literal, sizeof(literal) - 1)
#define taken(literal)                                                                         \
	do {                                                                                   \
		int rc_ = read(literal);                                                       \
		ck_assert_msg(!rc_, "%d %s", rc_, why.why);                                    \
	} while (0)
#define refused(literal, rc, line)                                                             \
	do {                                                                                   \
		ck_assert_int_eq(read(literal), rc);                                           \
		ck_assert_msg(strstr(why.why, line), "%s", why.why);                           \
	} while (0)

static uint32_t item(uint32_t i)
{
	return pickle_item(p, pickle_root(p), i);
}

static void free_it(void)
{
	pickle_free(p);
	p = NULL;
}

static void is_int(uint32_t node, int64_t value)
{
	int64_t is = ~value;

	ck_assert(pickle_int(p, node, &is));
	ck_assert_int_eq(is, value);
}

static void is_real(uint32_t node, double value)
{
	double is = value + 1;

	ck_assert_int_eq(pickle_kind(p, node), PICKLE_REAL);
	ck_assert(pickle_number(p, node, &is));
	ck_assert_double_eq(is, value);
}

static void is_bytes(uint32_t node, enum pickle_kind kind, const char *bytes, size_t size)
{
	size_t n = 0;
	const char *is = pickle_text(p, node, &n);

	ck_assert_int_eq(pickle_kind(p, node), kind);
	ck_assert_uint_eq(n, size);
	ck_assert_int_eq(memcmp(is, bytes, size), 0);
}

START_TEST(reads_numbers)
{
	taken("(K\xff"
	      "M\x34\x12"
	      "J\xfe\xff\xff\xff"
	      "\x8a\x00\x8a\x02\x00\x80\x8a\x09\x00\x00\x00\x00\x00\x01\x00\x00\x00"
	      "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"
	      "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"
	      "\x8b\x01\x00\x00\x00\x81"
	      "I-12\nI00\nI01\nL99999999999999999999L\nL7L\nF-2.5\n"
	      "G\x3f\xf8\x00\x00\x00\x00\x00\x00t.");
	ck_assert_int_eq(pickle_count(p, pickle_root(p)), 16);
	is_int(item(0), 255);
	is_int(item(1), 0x1234);
	is_int(item(2), -2);
	is_int(item(3), 0);
	is_int(item(4), -32768);
	is_int(item(5), (int64_t)1 << 40);
	is_int(item(6), INT64_MIN);
	is_bytes(item(7), PICKLE_BIG, "\xff\xff\xff\xff\xff\xff\xff\xff\x00", 9);
	is_int(item(8), -127);
	is_int(item(9), -12);
	ck_assert_int_eq(pickle_kind(p, item(10)), PICKLE_BOOL);
	bool flag = false;

	ck_assert(pickle_bool(p, item(11), &flag) && flag);
	is_bytes(item(12), PICKLE_BIG, "99999999999999999999", 20);
	is_int(item(13), 7);
	is_real(item(14), -2.5);
	is_real(item(15), 1.5);
	refused("I-\n.", -EBADMSG, "not an integer");
	refused("I1x\n.", -EBADMSG, "not an integer");
	refused("L\n.", -EBADMSG, "not an integer");
	refused("F1.5x\n.", -EBADMSG, "not a number");
	refused("F\n.", -EBADMSG, "not a number");
	free_it();
}
END_TEST

START_TEST(reads_texts)
{
	taken("(X\x02\x00\x00\x00\xc3\xa4"
	      "\x8c\x03\xed\xa0\x80" /* a lone surrogate */
	      "\x8d\x01\x00\x00\x00\x00\x00\x00\x00z"
	      "U\x01y"
	      "T\x01\x00\x00\x00\xff"
	      "S'a\\'\\x41\\n\\101'\nV\\u00e4\xe4\\\n"
	      "C\x02\x00\x01"
	      "B\x01\x00\x00\x00w\x96\x01\x00\x00\x00\x00\x00\x00\x00vt.");
	is_bytes(item(0), PICKLE_TEXT, "\xc3\xa4", 2);
	is_bytes(item(1), PICKLE_TEXT, "\xed\xa0\x80", 3);
	is_bytes(item(2), PICKLE_TEXT, "z", 1);
	is_bytes(item(3), PICKLE_TEXT, "y", 1);
	is_bytes(item(4), PICKLE_BYTES, "\xff", 1);
	is_bytes(item(5), PICKLE_TEXT, "a'A\nA", 5);
	is_bytes(item(6), PICKLE_TEXT, "\xc3\xa4\xc3\xa4\\", 5);
	is_bytes(item(7), PICKLE_BYTES, "\0\1", 2);
	is_bytes(item(8), PICKLE_BYTES, "w", 1);
	is_bytes(item(9), PICKLE_BYTES, "v", 1);
	refused("X\x01\x00\x00\x00\xff.", -EBADMSG, "not UTF-8");
	refused("X\x02\x00\x00\x00\xc0\x80.", -EBADMSG, "not UTF-8");
	refused("X\x04\x00\x00\x00\xf4\x90\x80\x80.", -EBADMSG, "not UTF-8");
	refused("S'a\n.", -EBADMSG, "not a string");
	refused("S'\\'\n.", -EBADMSG, "not a string");
	refused("V\\u12\n.", -EBADMSG, "not a text");
	refused("V\\UffffffFF\n.", -EBADMSG, "not a text");
	free_it();
}
END_TEST

START_TEST(reads_containers)
{
	taken("(]K\1a](K\2K\3e)K\4\x85K\5K\6\x86K\7K\10K\11\x87(K\12l\x8f(K\13\x90"
	      "(K\14\x91}t.");
	ck_assert_int_eq(pickle_count(p, pickle_root(p)), 10);
	is_int(pickle_item(p, item(0), 0), 1);
	is_int(pickle_item(p, item(1), 1), 3);
	ck_assert_int_eq(pickle_kind(p, item(2)), PICKLE_TUPLE);
	ck_assert_int_eq(pickle_count(p, item(2)), 0);
	is_int(pickle_item(p, item(3), 0), 4);
	is_int(pickle_item(p, item(4), 1), 6);
	is_int(pickle_item(p, item(5), 2), 9);
	is_int(pickle_item(p, item(6), 0), 10);
	is_int(pickle_item(p, item(7), 0), 11);
	ck_assert_int_eq(pickle_kind(p, item(8)), PICKLE_TUPLE);
	ck_assert_int_eq(pickle_kind(p, item(9)), PICKLE_DICT);
	ck_assert_int_eq(pickle_item(p, item(0), 1), PICKLE_NOTHING);
	ck_assert_int_eq(pickle_item(p, item(9), 0), PICKLE_NOTHING);
	refused("K\1K\2a.", -EBADMSG, "no list");
	refused("]K\1K\2s.", -EBADMSG, "no dict");
	refused("}(K\1u.", -EBADMSG, "without a value");
	refused("}]K\2s.", -EBADMSG, "as a key");
	refused("}]\x85K\2s.", -EBADMSG, "as a key");
	refused("]K\1.", -EBADMSG, "left over");
	refused("(K\1.", -EBADMSG, "left over");
	refused("(0.", -EBADMSG, "a value is missing");
	refused("t.", -EBADMSG, "a mark is missing");
	free_it();
}
END_TEST

START_TEST(finds_keys)
{
	taken("}(X\1\0\0\0aK\1K\7K\2)K\3X\2\0\0\0a\0K\4u.");
	uint32_t root = pickle_root(p);

	ck_assert_uint_eq(pickle_count(p, root), 4);
	is_int(pickle_get(p, root, "a"), 1);
	is_int(pickle_get_int(p, root, 7), 2);
	is_int(pickle_get_text(p, root, "a\0", 2), 4);
	is_int(pickle_value(p, root, 2), 3);
	ck_assert_int_eq(pickle_kind(p, pickle_key(p, root, 2)), PICKLE_TUPLE);
	ck_assert_int_eq(pickle_get(p, root, "b"), PICKLE_NOTHING);
	ck_assert_int_eq(pickle_get(p, pickle_get(p, root, "b"), "c"), PICKLE_NOTHING);
	ck_assert_int_eq(pickle_get_int(p, root, 1), PICKLE_NOTHING);
	free_it();
}
END_TEST

/* As Python: in the place of the first, with the value of the last. */
static void check_repeated(int keys)
{
	uint8_t bytes[1 << 16], *at = bytes;
	char key[16];

	*at++ = '}';
	for (int i = 0; i < 3 * keys; i++) {
		snprintf(key, sizeof(key), "%05d", (i * 7) % keys);
		memcpy(at, "\x8c\x05", 2);
		memcpy(at + 2, key, 5);
		at[7] = 'M';
		at[8] = (uint8_t)i;
		at[9] = (uint8_t)(i >> 8);
		at[10] = 's';
		memcpy(at + 11, "J\0\0\0\0M", 6);
		at[12] = (uint8_t)((i * 7) % keys);
		at[17] = (uint8_t)i;
		at[18] = (uint8_t)(i >> 8);
		at[19] = 's';
		at += 20;
	}
	*at++ = '.';
	ck_assert_int_eq(read_bytes(bytes, (size_t)(at - bytes)), 0);
	ck_assert_uint_eq(pickle_count(p, pickle_root(p)), 2 * keys);
	for (int i = 0; i < keys; i++) {
		snprintf(key, sizeof(key), "%05d", (i * 7) % keys);
		is_int(pickle_get(p, pickle_root(p), key), i + 2 * keys);
		is_int(pickle_get_int(p, pickle_root(p), (i * 7) % keys), i + 2 * keys);
		ck_assert(pickle_is_text(p, pickle_key(p, pickle_root(p), 2 * i), key));
	}
	ck_assert_int_eq(pickle_get(p, pickle_root(p), "00999"), PICKLE_NOTHING);
	ck_assert_int_eq(pickle_get_int(p, pickle_root(p), -1), PICKLE_NOTHING);
	free_it();
}

START_TEST(keeps_the_last_of_equal_keys)
{
	check_repeated(1);
	check_repeated(4);
	check_repeated(5);
	check_repeated(200);
}
END_TEST

START_TEST(remembers)
{
	taken("(]q\0h\0r\1\0\0\0j\1\0\0\0p2\ng2\n]\x94h\3]"
	      "r\xff\xff\xff\xffj\xff\xff\xff\xfft.");
	ck_assert_int_eq(item(0), item(1));
	ck_assert_int_eq(item(1), item(2));
	ck_assert_int_eq(item(2), item(3));
	ck_assert_int_ne(item(4), item(0));
	ck_assert_int_eq(item(4), item(5));
	ck_assert_int_eq(item(6), item(7));
	refused("h\0.", -EBADMSG, "memo slot 0 is empty");
	refused("j\xff\xff\xff\xff.", -EBADMSG, "is empty");
	refused("Np-1\n.", -EBADMSG, "not a memo slot");
	refused("q\0.", -EBADMSG, "a value is missing");
	free_it();
}
END_TEST

START_TEST(stands_cycles)
{
	taken("]q\0h\0ah\0a.");
	ck_assert_int_eq(item(0), pickle_root(p));
	ck_assert_uint_eq(pickle_count(p, pickle_root(p)), 2);
	free_it();
}
END_TEST

START_TEST(calls_nothing)
{
	taken("cposix\nsystem\nX\2\0\0\0rm\x85R}X\1\0\0\0kK\1sb(K\5K\6u(K\7e.");
	uint32_t root = pickle_root(p);

	ck_assert_int_eq(pickle_kind(p, root), PICKLE_OBJECT);
	ck_assert(pickle_is_object(p, root, "posix", "system"));
	ck_assert(!pickle_is_object(p, root, "os", "system"));
	ck_assert(pickle_is_text(p, pickle_item(p, pickle_arguments(p, root), 0), "rm"));
	is_int(pickle_field(p, root, "k"), 1);
	is_int(pickle_get_int(p, pickle_items(p, root), 5), 6);
	is_int(pickle_item(p, pickle_sequence(p, root), 0), 7);
	taken("\x8c\5posix\x8c\6system\x93)\x81N}X\1\0\0\0kK\1s\x86"
	      "b.");
	ck_assert(pickle_is_object(p, pickle_root(p), "posix", "system"));
	is_int(pickle_field(p, pickle_root(p), "k"), 1);
	taken("cm\nn\n)}\x92.");
	ck_assert(pickle_is_object(p, pickle_root(p), "m", "n"));
	taken("cm\nn\n.");
	ck_assert(pickle_is_global(p, pickle_root(p), NULL, "n"));
	refused("cm\nn\n]R.", -EBADMSG, "no tuple");
	refused("K\1K\2\x93.", -EBADMSG, "name is no text");
	free_it();
}
END_TEST

START_TEST(knows_some_callees)
{
	taken("(ccollections\nOrderedDict\n)Rccollections\nOrderedDict\n]]K\1aK\2aa\x85R"
	      "ctorch\nSize\nK\3K\4\x86\x85R"
	      "c_codecs\nencode\nX\4\0\0\0\xc3\xbf\1zX\6\0\0\0latin1\x86R"
	      "c__builtin__\nset\n](K\1K\2e\x85R"
	      "cdeepspeed.runtime.zero.config\nZeroStageEnum\nq\0K\3\x85R"
	      "c__builtin__\ngetattr\nh\0X\11\0\0\0gradients\x86R"
	      "cbuiltins\nfrozenset\n]K\1a\x85R"
	      "t.");
	ck_assert_int_eq(pickle_kind(p, item(0)), PICKLE_DICT);
	is_int(pickle_get_int(p, item(1), 1), 2);
	ck_assert_int_eq(pickle_kind(p, item(2)), PICKLE_TUPLE);
	is_int(pickle_item(p, item(2), 1), 4);
	is_bytes(item(3), PICKLE_BYTES, "\xff\1z", 3);
	ck_assert_uint_eq(pickle_count(p, item(4)), 2);
	is_int(item(5), 3);
	is_int(item(6), 2);
	ck_assert_int_eq(pickle_kind(p, item(7)), PICKLE_TUPLE);
	refused("ccollections\nOrderedDict\n]K\1a\x85R.", -EBADMSG, "no pairs");
	refused("c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R.", -EBADMSG,
		"not Latin-1");
	free_it();
}
END_TEST

#define STORAGE "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\14tQ"
#define UNTYPED "(X\7\0\0\0storagectorch\nUntypedStorage\nX\1\0\0\0000X\3\0\0\0cpuK\14tQ"

static struct pickle_tensor tensor(void)
{
	struct pickle_tensor t = { 0 };

	ck_assert_msg(pickle_tensor(p, pickle_root(p), &t), "kind %d",
		      pickle_kind(p, pickle_root(p)));
	return t;
}

START_TEST(reads_tensors)
{
	struct pickle_tensor t;
	struct pickle_storage s;

	taken("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE "K\2K\3\x85K\1\x85\x89}tR.");
	t = tensor();
	ck_assert_int_eq(t.dtype, FRAG_F32);
	ck_assert_int_eq(t.offset, 2);
	is_int(pickle_item(p, t.shape, 0), 3);
	is_int(pickle_item(p, t.stride, 0), 1);
	ck_assert(pickle_storage(p, t.storage, &s));
	ck_assert_uint_eq(s.numel, 12);
	ck_assert(pickle_is_text(p, s.key, "0"));
	taken("ctorch._utils\n_rebuild_tensor_v3\n(" UNTYPED
	      "K\2K\3\x85K\1\x85\x89}ctorch\nuint16\ntR.");
	ck_assert_int_eq(tensor().dtype, FRAG_U16);
	taken("ctorch._utils\n_rebuild_parameter\nctorch._utils\n_rebuild_tensor_v2\n(" STORAGE
	      "K\2K\3\x85K\1\x85\x89}tR\x88}\x87R}b.");
	ck_assert_int_eq(tensor().offset, 2);
	taken("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
	      "ctorch\nTensor\n(" STORAGE "K\2K\3\x85K\1\x85\x89}t}tR.");
	ck_assert_int_eq(tensor().offset, 2);
	free_it();
}
END_TEST

START_TEST(leaves_other_tensors_inert)
{
	/* Of a class of its own; of a dtype of its own; with its sign still to be turned. */
	taken("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
	      "cmy\nTensor\n(" STORAGE "K\2K\3\x85K\1\x85\x89}t}tR.");
	ck_assert_int_eq(pickle_kind(p, pickle_root(p)), PICKLE_OBJECT);
	taken("ctorch._utils\n_rebuild_tensor_v3\n(" UNTYPED
	      "K\2K\3\x85K\1\x85\x89}ctorch\nfloat1\ntR.");
	ck_assert_int_eq(pickle_kind(p, pickle_root(p)), PICKLE_OBJECT);
	taken("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE
	      "K\2K\3\x85K\1\x85\x89}}X\3\0\0\0neg\x88stR.");
	ck_assert_int_eq(pickle_kind(p, pickle_root(p)), PICKLE_OBJECT);
	free_it();
}
END_TEST

static void check_reason(const char *reason)
{
	char told[TORCH_UNSUPPORTED_MAX];

	ck_assert(torch_unsupported(p, pickle_root(p), told));
	ck_assert_str_eq(told, reason);
}

#define SPARSE_OF(class)                                                                       \
	"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_sparse_tensor\n"      \
	"c" class "\n)}tR."

START_TEST(tells_of_a_plain_class_why_its_tensor_is_not_shown)
{
	taken(SPARSE_OF("torch\nTensor"));
	check_reason("it is sparse");
	taken(SPARSE_OF("torch.nn.parameter\nParameter"));
	check_reason("it is sparse");
	taken(SPARSE_OF("torch.nn.parameter\nBuffer"));
	check_reason("it is sparse");
	taken(SPARSE_OF("my\nTensor"));
	check_reason("it is of class my.Tensor");
	free_it();
}
END_TEST

START_TEST(refuses_broken_tensors)
{
	refused("ctorch._utils\n_rebuild_tensor_v2\n(K\1K\2K\3\x85K\1\x85\x89}tR.", -EBADMSG,
		"a tensor without");
	refused("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE "K\2K\3\x85)\x89}tR.", -EBADMSG,
		"a tensor without");
	refused("ctorch._utils\n_rebuild_tensor_v2\n)R.", -EBADMSG, "a tensor without");
	taken("(X\6\0\0\0modulecmy\nNet\nX\1\0\0\0fX\1\0\0\0stQ.");
	ck_assert(pickle_is_global(p, pickle_root(p), "my", "Net"));
	refused("K\1Q.", -EBADMSG, "no storage");
	refused("(X\7\0\0\0storagecmy\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\14tQ.", -EBADMSG,
		"no storage");
	refused("(X\7\0\0\0storagectorch\nMyStorage\nX\1\0\0\0000X\3\0\0\0cpuK\14tQ.",
		-EOPNOTSUPP, "MyStorage");
	refused("(X\7\0\0\0storagectorch\nIntStorage\nX\1\0\0\0000X\3\0\0\0cpuJ\xff\xff\xff\xff"
		"tQ.",
		-EBADMSG, "impossible size");
	free_it();
}
END_TEST

START_TEST(refuses_what_it_does_not_take)
{
	static const uint8_t others[] = {
		'i', 'o', 'P', 0x82, 0x83, 0x84, 0x97, 0x98, 0, 0xff
	};
	uint8_t bytes[] = "(K\1?\1\1\1\1.";

	for (size_t i = 0; i < sizeof(others); i++) {
		bytes[3] = others[i];
		ck_assert_int_eq(read_bytes(bytes, sizeof(bytes) - 1), -EOPNOTSUPP);
	}
	refused("\x80\6N.", -EOPNOTSUPP, "protocol 6");
	taken("\x80\5\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.");
	free_it();
}
END_TEST

START_TEST(checks_lengths_before_it_believes_them)
{
	refused("", -EBADMSG, "wanted");
	refused("N", -EBADMSG, "wanted");
	refused("X\xff\xff\xff\xff.", -EBADMSG, "4294967295 bytes wanted, 1 are left");
	refused("\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", -EBADMSG, "wanted");
	refused("\x8e\0\0\0\0\0\0\0\x80.", -EBADMSG, "wanted");
	refused("\x8b\xff\xff\xff\xff.", -EBADMSG, "negative");
	refused("T\0\0\0\x80.", -EBADMSG, "negative");
	refused("I1", -EBADMSG, "wanted");
	refused("cm\nn", -EBADMSG, "wanted");
}
END_TEST

/* ---- in bounded time ---- */

/* head, n times body, tail. */
static int read_repeated(const char *head, const char *body, size_t body_size, size_t n,
			 const char *tail)
{
	size_t size = strlen(head) + n * body_size + strlen(tail);
	uint8_t *bytes = malloc(size + 1), *at = bytes;
	int rc;

	at = mempcpy(at, head, strlen(head));
	for (size_t i = 0; i < n; i++)
		at = mempcpy(at, body, body_size);
	memcpy(at, tail, strlen(tail) + 1);
	rc = read_bytes(bytes, size);
	free(bytes);
	return rc;
}

#define repeated(head, body, n, tail) read_repeated(head, body, sizeof(body) - 1, n, tail)

START_TEST(nests_without_recursion)
{
	static char lists[400000];

	memset(lists, ']', 200000);
	memset(lists + 200000, 'a', 199999);
	ck_assert_int_eq(repeated(lists, ".", 1, ""), 0);
	ck_assert_uint_eq(pickle_count(p, pickle_root(p)), 1);
	ck_assert_int_eq(repeated("N", "\x85", 200000, "."), 0);
	ck_assert_uint_eq(pickle_nodes(p), 200000 + 5);
	ck_assert_int_eq(repeated("", "(", 300000, "."), -EFBIG);
	ck_assert_msg(strstr(why.why, "nested deeper"), "%s", why.why);
	free_it();
}
END_TEST

START_TEST(does_not_copy_again_and_again)
{
	char head[100000], *at = head;

	at = stpcpy(at, "(ccollections\nOrderedDict\np0\n](");
	for (int i = 0; i < 9000; i++)
		at = stpcpy(at, "NN\x86");
	strcpy(at, "ep1\n");
	ck_assert_int_eq(repeated(head, "g0\ng1\n\x85R", 100000, "t."), -EFBIG);
	ck_assert_msg(strstr(why.why, "again and again"), "%s", why.why);
	at = stpcpy(head, "(c_codecs\nencode\np0\nV");
	memset(at, 'a', 50000);
	strcpy(at + 50000, "\np1\nVlatin1\np2\n");
	ck_assert_int_eq(repeated(head, "g0\ng1\ng2\n\x86R", 100000, "t."), -EFBIG);
	ck_assert_msg(strstr(why.why, "again and again"), "%s", why.why);
}
END_TEST

/* Two long keys, equal, each a hundred thousand times. */
START_TEST(compares_no_key_again_and_again)
{
	static char head[1 << 20];
	char *at = stpcpy(head, "N(V");
	uint64_t from = monotonic_ms();

	memset(at, 'a', 500000);
	at = stpcpy(at + 500000, "\np0\nV");
	memset(at, 'a', 500000);
	strcpy(at + 500000, "\np1\n10}(");
	ck_assert_int_eq(repeated(head, "g0\nNg1\nN", 100000, "u."), 0);
	ck_assert_uint_eq(pickle_count(p, pickle_root(p)), 1);
	ck_assert_uint_lt(monotonic_ms() - from, 20000);
	free_it();
}
END_TEST

START_TEST(bounds_far_memo_slots)
{
	char body[400], *at = body;

	for (int i = 0; i < 70; i++)
		at = mempcpy(at, (char[]){ 'r', (char)i, 0, 0, 'x' }, 5);
	ck_assert_int_eq(read_repeated("N", body, 5 * 64, 1, "."), 0);
	ck_assert_int_eq(read_repeated("N", body, 5 * 65, 1, "."), -EFBIG);
	free_it();
}
END_TEST

START_TEST(stops_at_stop)
{
	taken("K\7.trailing");
	ck_assert_uint_eq(pickle_size(p), 3);
	is_int(pickle_root(p), 7);
	free_it();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pickle");
	TCase *t = tcase_create("pickle");

	tcase_add_test(t, reads_numbers);
	tcase_add_test(t, reads_texts);
	tcase_add_test(t, reads_containers);
	tcase_add_test(t, finds_keys);
	tcase_add_test(t, keeps_the_last_of_equal_keys);
	tcase_add_test(t, remembers);
	tcase_add_test(t, stands_cycles);
	tcase_add_test(t, calls_nothing);
	tcase_add_test(t, knows_some_callees);
	tcase_add_test(t, reads_tensors);
	tcase_add_test(t, leaves_other_tensors_inert);
	tcase_add_test(t, tells_of_a_plain_class_why_its_tensor_is_not_shown);
	tcase_add_test(t, refuses_broken_tensors);
	tcase_add_test(t, refuses_what_it_does_not_take);
	tcase_add_test(t, checks_lengths_before_it_believes_them);
	tcase_add_test(t, nests_without_recursion);
	tcase_add_test(t, does_not_copy_again_and_again);
	tcase_add_test(t, compares_no_key_again_and_again);
	tcase_add_test(t, bounds_far_memo_slots);
	tcase_add_test(t, stops_at_stop);
	return run_suite(s, t);
}
