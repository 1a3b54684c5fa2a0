/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/log.h"
#include "engine/base/vec.h"
#include "engine/swap/deepspeed/tensor-swp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A rank's partitions from and to a folder of DeepSpeed's optimizer swapper. */

enum { SMALLEST = 1 << 20 }; /* bytes: DeepSpeed's min_aio_bytes, unless block_size is larger */

/* A sub-group; DeepSpeed's file names have the numbers of its first and last parameter. */
struct home {
	uint32_t group, sub;
	uint64_t first, last;
	uint64_t numel;
};

struct swp_item { /* one file, one state */
	struct tensor_swp swp;
	uint32_t home;
	enum frag_dtype dtype;
	int row; /* -1: there is no such state yet */
};

struct swp {
	struct frag *f;
	struct frag_swp config;
	int folder;
	struct home *homes;
	uint32_t nhomes;
	struct vec items; /* of struct swp_item */
	char why[TENSOR_SWP_FILE_MAX + 200];
};

/* ---- homes ---- */

static uint64_t number_of(const struct swp *s, uint32_t param)
{
	return s->config.numbers ? s->config.numbers[param] : param;
}

static bool is_swapped(const struct catalog_group *g)
{
	return g->stage == 3 && g->sharding == FRAG_ZERO;
}

static void list_group(struct swp *s, uint32_t group)
{
	const struct catalog_group *g = &s->f->engine->own->groups[group];
	uint32_t begin = s->nhomes;

	for (uint32_t i = 0; i < g->layout.nsubs; i++)
		s->homes[s->nhomes++] = (struct home){ .group = group,
						       .sub = i,
						       .first = UINT64_MAX,
						       .numel = g->layout.partition_numel[i] };
	for (uint32_t i = 0; i < g->nparams; i++) {
		struct home *h = &s->homes[begin + layout_sub(&g->layout, i)];

		if (!g->layout.numel[i]) /* DeepSpeed leaves out empty parameters */
			continue;
		h->last = number_of(s, g->params[i]);
		h->first = h->first == UINT64_MAX ? h->last : h->first;
	}
}

static int list_homes(struct swp *s)
{
	const struct catalog *own = s->f->engine->own;
	uint64_t n = 0;

	for (uint32_t i = 0; i < own->ngroups; i++)
		n += is_swapped(&own->groups[i]) ? own->groups[i].layout.nsubs : 0;
	if (!n) {
		snprintf(s->why, sizeof(s->why), "this rank has no group of ZeRO stage 3");
		return -ENOENT;
	}
	s->homes = malloc(n * sizeof(*s->homes));
	if (!s->homes)
		return -ENOMEM;
	for (uint32_t i = 0; i < own->ngroups; i++)
		if (is_swapped(&own->groups[i]))
			list_group(s, i);
	return 0;
}

static struct swp_item *item_at(const struct swp *s, size_t i)
{
	return (struct swp_item *)s->items.items + i;
}

static const char *key_of(const struct swp_item *item)
{
	return item->swp.key[0] ? item->swp.key : "fp32";
}

static uint64_t bytes_of(const struct swp *s, const struct swp_item *item)
{
	return s->homes[item->home].numel * frag_dtype_size(item->dtype);
}

static int add_item(struct swp *s, const struct tensor_swp *swp, uint32_t home)
{
	struct swp_item *item = vec_add(&s->items, sizeof(*item));

	if (!item)
		return -ENOMEM;
	*item = (struct swp_item){ .swp = *swp, .home = home, .dtype = FRAG_F32 };
	item->row =
		registry_find(&s->f->engine->registry, STATE_PARTITION, s->homes[home].group,
			      s->homes[home].sub, key_of(item), &item->dtype);
	return 0;
}

/* ---- opening ---- */

static void close_swp(struct swp *s)
{
	if (s->folder >= 0)
		close(s->folder);
	free(s->homes);
	free(s->items.items);
}

static int open_swp(struct swp *s, struct frag *f, const struct frag_swp *config)
{
	int rc;

	*s = (struct swp){ .f = f, .folder = -1 };
	rc = api_engine(f) ? api_copy_versioned(&s->config, config, sizeof(s->config))
			   : -EINVAL;
	if (rc || !s->config.folder || s->config.threads > TENSOR_SWP_THREADS_MAX)
		return -EINVAL;
	s->config.threads = s->config.threads ? s->config.threads : 1;
	s->config.smallest = s->config.smallest ? s->config.smallest : SMALLEST;
	s->folder = open(s->config.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->folder < 0) {
		snprintf(s->why, sizeof(s->why), "%s", strerror(errno));
		return -errno;
	}
	return list_homes(s);
}

static int64_t end(struct swp *s, int rc, size_t done)
{
	if (rc && s->why[0])
		log_warn("%s: %s", s->config.folder, s->why);
	close_swp(s);
	return rc ? rc : (int64_t)done;
}

/* ---- import ---- */

static int64_t find_home(const struct swp *s, const struct tensor_swp *swp)
{
	for (uint32_t i = 0; i < s->nhomes; i++)
		if (s->homes[i].first == swp->first && s->homes[i].last == swp->last)
			return i;
	return -ENOENT;
}

static int see_file(struct swp *s, const char *file)
{
	struct tensor_swp swp;
	int64_t home;

	if (!tensor_swp_parse(file, &swp))
		return 0;
	home = find_home(s, &swp);
	if (home >= 0)
		return add_item(s, &swp, (uint32_t)home);
	snprintf(s->why, sizeof(s->why),
		 "%s: this rank has no sub-group of the parameters %" PRIu64 " to %" PRIu64,
		 file, swp.first, swp.last);
	return -EINVAL;
}

static int list_folder(struct swp *s)
{
	int fd = dup(s->folder), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return -ENOMEM;
	}
	while (!rc && (entry = readdir(dir)))
		rc = see_file(s, entry->d_name);
	closedir(dir);
	return rc;
}

static bool has_item(const struct swp *s, uint32_t home, const char *key)
{
	for (size_t i = 0; i < s->items.count; i++)
		if (item_at(s, i)->home == home && !strcmp(item_at(s, i)->swp.key, key))
			return true;
	return false;
}

/* Checks that each sub-group that is large enough to be swapped has a file with the key; "" is
 * the master's.
 * -ENOENT: s->why names the missing file.
 */
static int check_complete(struct swp *s, const char *key)
{
	for (uint32_t i = 0; i < s->nhomes; i++) {
		struct tensor_swp missing = { .first = s->homes[i].first,
					      .last = s->homes[i].last };
		char file[TENSOR_SWP_FILE_MAX];

		if (s->homes[i].numel * sizeof(float) < s->config.smallest ||
		    has_item(s, i, key))
			continue;
		strcpy(missing.key, key);
		tensor_swp_name(&missing, file);
		snprintf(s->why, sizeof(s->why), "%s: %s", file, strerror(ENOENT));
		return -ENOENT;
	}
	return 0;
}

static bool is_first_of_key(const struct swp *s, size_t item)
{
	for (size_t i = 0; i < item; i++)
		if (!strcmp(item_at(s, i)->swp.key, item_at(s, item)->swp.key))
			return false;
	return true;
}

/* Each sub-group must have the master, and each key that any has. */
static int check_all_complete(struct swp *s)
{
	int rc = check_complete(s, "");

	for (size_t i = 0; i < s->items.count && !rc; i++)
		if (is_first_of_key(s, i))
			rc = check_complete(s, item_at(s, i)->swp.key);
	return rc;
}

static int open_item(struct swp *s, const struct swp_item *item)
{
	char file[TENSOR_SWP_FILE_MAX];

	tensor_swp_name(&item->swp, file);
	return tensor_swp_open(s->folder, file, bytes_of(s, item), s->why, sizeof(s->why));
}

static int check_files(struct swp *s)
{
	int fd = 0;

	for (size_t i = 0; i < s->items.count && fd >= 0; i++) {
		fd = open_item(s, item_at(s, i));
		if (fd >= 0)
			close(fd);
	}
	return fd < 0 ? fd : 0;
}

struct swp_row {
	struct registry *registry;
	uint32_t row;
};

static int take(void *arg, uint64_t offset, void *data, size_t size)
{
	const struct swp_row *t = arg;

	return registry_put(t->registry, t->row, offset, data, size);
}

static int make_state(struct swp *s, struct swp_item *item)
{
	const struct home *h = &s->homes[item->home];
	void *memory;
	int rc = frag_state_alloc(s->f, (int)h->group, h->sub, key_of(item), item->dtype,
				  &memory);

	if (!rc)
		item->row = registry_find(&s->f->engine->registry, STATE_PARTITION, h->group,
					  h->sub, key_of(item), &item->dtype);
	return rc;
}

static int import_item(struct swp *s, struct swp_item *item)
{
	struct swp_row t = { .registry = &s->f->engine->registry };
	int fd = open_item(s, item), rc = 0;

	if (fd < 0)
		return fd;
	if (item->row < 0)
		rc = make_state(s, item);
	t.row = (uint32_t)item->row;
	if (!rc)
		rc = tensor_swp_read(fd, bytes_of(s, item), take, &t);
	if (rc)
		snprintf(s->why, sizeof(s->why), "%s of sub-group %u.%u: %s", key_of(item),
			 s->homes[item->home].group, s->homes[item->home].sub, strerror(-rc));
	close(fd);
	return rc;
}

int64_t frag_swp_import(struct frag *f, const struct frag_swp *config)
{
	struct swp s;
	size_t done = 0;
	int rc = open_swp(&s, f, config);

	if (!rc)
		rc = list_folder(&s);
	if (!rc)
		rc = check_all_complete(&s);
	if (!rc)
		rc = check_files(&s);
	for (; !rc && done < s.items.count; done++)
		rc = import_item(&s, item_at(&s, done));
	return end(&s, rc, done);
}

/* ---- export ---- */

static bool is_exported(const struct swp *s, const struct state_row *row, uint32_t home)
{
	const struct home *h = &s->homes[home];

	return row->kind == STATE_PARTITION && row->index == h->group && row->sub == h->sub &&
	       strcmp(row->key, "grad") != 0 && states_row_whole(row) >= s->config.smallest;
}

static int list_states(struct swp *s, uint32_t home)
{
	const struct states *states = &s->f->engine->registry.states;
	int rc = 0;

	for (uint32_t i = 0; i < states->ngroup_rows && !rc; i++) {
		const struct state_row *row = &states->rows[states->group_rows[i]];
		struct tensor_swp swp = { .first = s->homes[home].first,
					  .last = s->homes[home].last };

		if (!is_exported(s, row, home))
			continue;
		if (strcmp(row->key, "fp32") != 0)
			strcpy(swp.key, row->key);
		rc = add_item(s, &swp, home);
	}
	return rc;
}

static int give(void *arg, uint64_t offset, void *data, size_t size)
{
	const struct swp_row *t = arg;

	return registry_read(t->registry, 0, t->row, offset, data, size);
}

static int export_item(struct swp *s, const struct swp_item *item)
{
	struct swp_row t = { &s->f->engine->registry, (uint32_t)item->row };
	char file[TENSOR_SWP_FILE_MAX];

	tensor_swp_name(&item->swp, file);
	return tensor_swp_write(s->folder, file, bytes_of(s, item), s->config.threads, give, &t,
				s->why, sizeof(s->why));
}

int64_t frag_swp_export(struct frag *f, const struct frag_swp *config)
{
	struct swp s;
	size_t done = 0;
	int rc = open_swp(&s, f, config);

	for (uint32_t i = 0; !rc && i < s.nhomes; i++)
		rc = list_states(&s, i);
	for (; !rc && done < s.items.count; done++)
		rc = export_item(&s, item_at(&s, done));
	return end(&s, rc, done);
}
