/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap/swap-config.h"

#include "engine/base/bytes.h"
#include "engine/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
	PAGE = 4096,
	SLICE_MAX = 16 << 20, /* unless the file has a buffer_size */
	BUFFER_MAX = 1 << 30,
	LEAST = 1 << 20,
	BUFFERS = 16,
	BUFFERS_MIN = 2, /* for states that are swept: their master, and another */
	BUFFERS_MAX = 65536
};

enum flag { UNSAID, NO, YES };

/* DeepSpeed's keys.  0 and UNSAID: the file does not say. */
struct sections {
	uint64_t block_size, queue_depth, parallelism;
	enum flag single_submit, overlap_events, use_gds;
	struct offload {
		const char *device, *nvme_path;
		uint64_t buffer_count, buffer_size, max_in_cpu;
		enum flag pin_memory, pipeline_read, pipeline_write, fast_init, super_offload;
		double ratio, cores;
	} optimizer, param;
};

enum type { NUMBER, FLAG, TEXT, REAL };

static const struct key {
	const char *section, *name;
	enum type type;
	uint64_t min, max; /* of a FLAG: max 0: it cannot be true */
	size_t field;
	enum flag idle; /* a FLAG with this value has no effect; why: the reason */
	const char *why;
} keys[] = {
#define KEY(section, name, type, min, max, field, ...)                                         \
	{                                                                                      \
		section, name, type, min, max, offsetof(struct sections, field), __VA_ARGS__   \
	}
	KEY("aio", "block_size", NUMBER, PAGE, 1 << 30, block_size, UNSAID, NULL),
	KEY("aio", "queue_depth", NUMBER, 1, 65536, queue_depth, UNSAID, NULL),
	KEY("aio", "intra_op_parallelism", NUMBER, 1, 1024, parallelism, UNSAID, NULL),
	KEY("aio", "thread_count", NUMBER, 1, 1024, parallelism, UNSAID,
	    NULL), /* the old name of intra_op_parallelism */
	KEY("aio", "single_submit", FLAG, 0, 1, single_submit, YES,
	    "what is asked for together is submitted together"),
	KEY("aio", "overlap_events", FLAG, 0, 1, overlap_events, NO,
	    "each request is done when it ends, and the next begins"),
	KEY("aio", "use_gds", FLAG, 0, 0, use_gds, UNSAID, NULL),
	KEY("offload_optimizer", "device", TEXT, 0, 0, optimizer.device, UNSAID, NULL),
	KEY("offload_optimizer", "nvme_path", TEXT, 0, 0, optimizer.nvme_path, UNSAID, NULL),
	KEY("offload_optimizer", "buffer_count", NUMBER, BUFFERS_MIN, BUFFERS_MAX,
	    optimizer.buffer_count, UNSAID, NULL),
	KEY("offload_optimizer", "pin_memory", FLAG, 0, 1, optimizer.pin_memory, UNSAID, NULL),
	KEY("offload_optimizer", "pipeline_read", FLAG, 0, 1, optimizer.pipeline_read, UNSAID,
	    NULL),
	KEY("offload_optimizer", "pipeline_write", FLAG, 0, 1, optimizer.pipeline_write, UNSAID,
	    NULL),
	KEY("offload_optimizer", "fast_init", FLAG, 0, 1, optimizer.fast_init, UNSAID, NULL),
	KEY("offload_optimizer", "ratio", REAL, 0, 1, optimizer.ratio, UNSAID, NULL),
	KEY("offload_optimizer", "cpuadam_cores_perc", REAL, 0, 1, optimizer.cores, UNSAID,
	    NULL), /* a key of super_offload */
	KEY("offload_optimizer", "super_offload", FLAG, 0, 0, optimizer.super_offload, UNSAID,
	    NULL),
	KEY("offload_param", "device", TEXT, 0, 0, param.device, UNSAID, NULL),
	KEY("offload_param", "nvme_path", TEXT, 0, 0, param.nvme_path, UNSAID, NULL),
	KEY("offload_param", "buffer_count", NUMBER, 1, BUFFERS_MAX, param.buffer_count, UNSAID,
	    NULL),
	KEY("offload_param", "buffer_size", NUMBER, 1, (uint64_t)1 << 40, param.buffer_size,
	    UNSAID, NULL),
	KEY("offload_param", "max_in_cpu", NUMBER, 0, (uint64_t)1 << 40, param.max_in_cpu,
	    UNSAID, NULL),
	KEY("offload_param", "pin_memory", FLAG, 0, 1, param.pin_memory, UNSAID, NULL),
#undef KEY
};

struct config_reader {
	const char *path; /* of the file */
	const char *dir;  /* overrides the file's nvme_path; NULL: does not */
	char *why;
	size_t whysize;
	/* buffers that the file asks for, and bytes of each; 0: it names none */
	uint64_t buffers;
	uint64_t buffer_bytes;
};

static int bad(const struct config_reader *r, const char *fmt, ...) PRINTF(2, 3);

static int bad(const struct config_reader *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, r->whysize, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* ---- the file ---- */

static int bad_value(const struct config_reader *r, const struct key *k, const char *what)
{
	return bad(r, "%s: %s.%s: %s", r->path, k->section, k->name, what);
}

/* DeepSpeed's own examples write 1e8 for a number of elements. */
static int take_number(const struct config_reader *r, const struct key *k, const json_t *value,
		       uint64_t *out)
{
	double real = json_number_value(value);
	char what[80];

	snprintf(what, sizeof(what), "is not a whole number from %llu to %llu",
		 (unsigned long long)k->min, (unsigned long long)k->max);
	if (!json_is_number(value) || real < (double)k->min || real > (double)k->max ||
	    real != (double)(uint64_t)real)
		return bad_value(r, k, what);
	*out = (uint64_t)real;
	return 0;
}

static int take_flag(const struct config_reader *r, const struct key *k, const json_t *value,
		     enum flag *out)
{
	if (!json_is_boolean(value))
		return bad_value(r, k, "is neither true nor false");
	if (json_is_true(value) && !k->max)
		return bad_value(r, k, "there is no such way here");
	*out = json_is_true(value) ? YES : NO;
	if (k->why && *out == k->idle)
		log_warn("swap: %s: %s.%s: has no effect: %s", r->path, k->section, k->name,
			 k->why);
	return 0;
}

static int take_text(const struct config_reader *r, const struct key *k, const json_t *value,
		     const char **out)
{
	bool device = !strcmp(k->name, "device");

	if (json_is_null(value))
		return 0;
	if (!json_is_string(value) || !*json_string_value(value))
		return bad_value(r, k, "is not a text");
	*out = json_string_value(value);
	if (device && strcmp(*out, "none") && strcmp(*out, "cpu") && strcmp(*out, "nvme"))
		return bad_value(r, k, "is none of none, cpu and nvme");
	return 0;
}

static int take_real(const struct config_reader *r, const struct key *k, const json_t *value,
		     double *out)
{
	double real = json_number_value(value);

	if (!json_is_number(value) || real < (double)k->min || real > (double)k->max)
		return bad_value(r, k, "is not from 0 to 1");
	*out = real;
	return 0;
}

static int take_value(const struct config_reader *r, const struct key *k, const json_t *value,
		      struct sections *s)
{
	void *field = (char *)s + k->field;

	switch (k->type) {
	case NUMBER:
		return take_number(r, k, value, field);
	case FLAG:
		return take_flag(r, k, value, field);
	case TEXT:
		return take_text(r, k, value, field);
	case REAL:
		break;
	}
	return take_real(r, k, value, field);
}

static const struct key *find_key(const char *section, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (!strcmp(keys[i].section, section) && (!name || !strcmp(keys[i].name, name)))
			return &keys[i];
	return NULL;
}

/* Sets DeepSpeed's defaults of the section's keys, except for those that do harm here: frag(3)
 * has these.
 */
static void begin_section(struct sections *s, const char *section)
{
	if (!strcmp(section, "aio")) {
		s->block_size = 1 << 20;
		s->queue_depth = 8;
	}
	if (!strcmp(section, "offload_param")) {
		s->param.device = "none";
		s->param.max_in_cpu = 1000000000;
	}
}

static int take_section(const struct config_reader *r, const char *section, json_t *values,
			struct sections *s)
{
	const char *name;
	json_t *value;
	int rc = 0;

	if (!find_key(section, NULL))
		return bad(r,
			   "%s: %.60s: no such section; there are aio, offload_optimizer and "
			   "offload_param",
			   r->path, section);
	if (!json_is_object(values))
		return bad(r, "%s: %s: is not an object", r->path, section);
	begin_section(s, section);
	json_object_foreach (values, name, value) {
		const struct key *k = find_key(section, name);

		if (!rc)
			rc = k ? take_value(r, k, value, s)
			       : bad(r, "%s: %s.%.60s: no such key", r->path, section, name);
	}
	return rc;
}

/* Takes our three sections of a whole config of DeepSpeed. */
static int take_whole(const struct config_reader *r, json_t *root, struct sections *s)
{
	json_t *zero = json_object_get(root, "zero_optimization");
	const char *const of_zero[] = { "offload_optimizer", "offload_param" };
	json_t *aio = json_object_get(root, "aio");
	int rc = json_is_object(zero)
			 ? 0
			 : bad(r, "%s: zero_optimization: is not an object", r->path);

	if (!rc && aio)
		rc = take_section(r, "aio", aio, s);
	for (size_t i = 0; i < ARRAY_SIZE(of_zero) && !rc; i++) {
		json_t *values = json_object_get(zero, of_zero[i]);

		rc = values ? take_section(r, of_zero[i], values, s) : 0;
	}
	return rc;
}

static int take_sections(const struct config_reader *r, json_t *root, struct sections *s)
{
	const char *section;
	json_t *values;
	int rc = 0;

	if (!json_is_object(root))
		return bad(r, "%s: is not an object", r->path);
	if (json_object_get(root, "zero_optimization"))
		return take_whole(r, root, s);
	json_object_foreach (root, section, values) {
		if (!rc)
			rc = take_section(r, section, values, s);
	}
	return rc;
}

/* Sets *path to "" where the section sends nothing to NVMe. */
static int path_of(const struct config_reader *r, const struct offload *o, const char *section,
		   const char **path)
{
	*path = "";
	if (!o->device || strcmp(o->device, "nvme"))
		return 0;
	if (!o->nvme_path && !r->dir)
		return bad(r, "%s: %s.nvme_path: is missing, and there is no FRAG_SWAP_DIR",
			   r->path, section);
	*path = r->dir ? r->dir : o->nvme_path;
	return 0;
}

static int take_paths(const struct config_reader *r, const struct sections *s,
		      struct swap_config *c)
{
	const char *optimizer, *param, *path;
	int rc = path_of(r, &s->optimizer, "offload_optimizer", &optimizer);

	if (!rc)
		rc = path_of(r, &s->param, "offload_param", &param);
	if (rc)
		return rc;
	if (*optimizer && *param && strcmp(optimizer, param))
		return bad(r, "%s: offload_param.nvme_path: is not offload_optimizer's",
			   r->path);
	path = *optimizer ? optimizer : param;
	c->by = *optimizer ? "FRAG_SWAP_CONFIG: offload_optimizer.nvme_path"
			   : "FRAG_SWAP_CONFIG: offload_param.nvme_path";
	if (strlen(path) >= sizeof(c->dir))
		return bad(r, "%s: nvme_path: is too long", r->path);
	strcpy(c->dir, path);
	return 0;
}

/* Both sections speak of one pool. */
static int take_pool(struct config_reader *r, const struct sections *s, struct swap_config *c)
{
	const struct offload *o = &s->optimizer, *p = &s->param;

	if (o->pin_memory && p->pin_memory && o->pin_memory != p->pin_memory)
		return bad(r, "%s: offload_param.pin_memory: is not offload_optimizer's",
			   r->path);
	c->unlocked = o->pin_memory == NO || p->pin_memory == NO;
	if (o->buffer_count || p->buffer_count)
		r->buffers = (o->buffer_count ? o->buffer_count : BUFFERS) + p->buffer_count;
	if (p->buffer_size)
		r->buffer_bytes =
			/* buffer_size counts elements of two bytes */
			u64_min(u64_div_ceil(p->buffer_size * 2, PAGE) * PAGE, BUFFER_MAX);
	return 0;
}

static void take_rest(const struct sections *s, struct swap_config *c)
{
	c->chunk = (uint32_t)(u64_div_ceil(s->block_size, PAGE) * PAGE);
	c->depth = (unsigned)s->queue_depth;
	c->threads = (unsigned)s->parallelism;
	c->no_ahead = s->optimizer.pipeline_read == NO;
	c->no_behind = s->optimizer.pipeline_write == NO;
	c->fast_init = s->optimizer.fast_init == YES;
	c->in_memory = 1 - s->optimizer.ratio;
	c->stay = s->param.max_in_cpu;
	if (s->param.device && strcmp(s->param.device, "nvme") != 0)
		c->stay = UINT64_MAX;
}

static json_t *load(const struct config_reader *r, int *rc)
{
	CLEANUP(close) int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	json_error_t error;
	json_t *root;

	*rc = fd < 0 || fstat(fd, &st) ? -errno : S_ISDIR(st.st_mode) ? -EISDIR : 0;
	if (*rc)
		snprintf(r->why, r->whysize, "the swap config %s: %s", r->path, strerror(-*rc));
	else if (!S_ISREG(st.st_mode) || !st.st_size)
		*rc = bad(r, "the swap config %s: %s", r->path,
			  S_ISREG(st.st_mode) ? "is empty" : "is no regular file");
	if (*rc)
		return NULL;
	root = json_loadfd(fd, JSON_REJECT_DUPLICATES, &error);
	*rc = root ? 0 : bad(r, "%s: line %d: %.100s", r->path, error.line, error.text);
	return root;
}

static int read_file(struct config_reader *r, struct swap_config *c)
{
	struct sections s = { .optimizer.ratio = 1 };
	int rc;
	json_t *root = load(r, &rc);

	if (!root)
		return rc;
	rc = take_sections(r, root, &s);
	if (!rc)
		rc = take_paths(r, &s, c);
	if (!rc)
		rc = take_pool(r, &s, c);
	if (!rc)
		take_rest(&s, c);
	json_decref(root);
	return rc;
}

/* ---- all of it ---- */

/* A text that is given, even empty, overrides the variable. */
static const char *setting(const char *given, const char *name)
{
	return !given ? env_text(name) : *given ? given : NULL;
}

static int open_files_dir(const struct config_reader *r, const char *dir, struct swap_config *c)
{
	if (strlen(dir) >= sizeof(c->dir))
		return bad(r, "FRAG_SWAP_DIR is longer than %zu bytes", sizeof(c->dir) - 1);
	strcpy(c->dir, dir);
	c->by = "FRAG_SWAP_DIR";
	return 0;
}

static int take_bytes(const struct config_reader *r, uint64_t given, const char *name,
		      uint64_t *out)
{
	const char *text = getenv(name);

	*out = given;
	if (!given && text && *text && !bytes_parse(text, out))
		return bad(r, "%s=%.40s is no number of bytes (K, M, G)", name, text);
	return 0;
}

static int take_debug(const struct config_reader *r, struct swap_config *c)
{
	const char *text = getenv("FRAG_SWAP_DEBUG");

	c->debug = text && !strcmp(text, "1");
	if (text && *text && !c->debug && strcmp(text, "0") != 0)
		return bad(r, "FRAG_SWAP_DEBUG=%.40s is neither 0 nor 1", text);
	return 0;
}

/* Cuts the pinned memory into equal buffers of whole pages. */
static int cut(const struct config_reader *r, struct swap_config *c)
{
	uint64_t count = r->buffers ? r->buffers : BUFFERS;
	uint64_t most = r->buffer_bytes ? r->buffer_bytes : SLICE_MAX;

	if (!c->pinned)
		c->pinned = count * most;
	c->slice = u64_min(c->pinned / count, most) / PAGE * PAGE;
	if (!c->slice)
		return bad(r, "FRAG_PINNED_MEM: %llu bytes are less than %llu buffers of %d",
			   (unsigned long long)c->pinned, (unsigned long long)count, PAGE);
	c->least = u64_min(c->slice, u64_max(LEAST, c->chunk));
	return 0;
}

int swap_config_read(struct swap_config *out, const struct frag_config *given, char *why,
		     size_t whysize)
{
	struct frag_config config = { 0 };
	struct swap_config c = { .dir = "" };
	struct config_reader r = { .why = why, .whysize = whysize };
	const char *dir;
	int rc = 0;

	if (given)
		memcpy(&config, given, u64_min(given->size, sizeof(config)));
	r.path = setting(config.swap_config, "FRAG_SWAP_CONFIG");
	r.dir = dir = setting(config.swap_dir, "FRAG_SWAP_DIR");
	if (r.path)
		rc = read_file(&r, &c);
	if (!rc && dir)
		rc = open_files_dir(&r, dir, &c);
	if (!rc)
		rc = take_bytes(&r, config.pinned_mem, "FRAG_PINNED_MEM", &c.pinned);
	if (!rc)
		rc = take_bytes(&r, config.swap_max, "FRAG_SWAP_MAX", &c.max);
	if (!rc)
		rc = take_debug(&r, &c);
	if (!rc && c.dir[0])
		rc = cut(&r, &c);
	if (!rc)
		*out = c;
	return rc;
}
