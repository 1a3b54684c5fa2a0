/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/set.h"

#include "engine/base/log.h"
#include "engine/catalog/operation.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct set { /* an edit under way */
	struct request *request;
	struct engine_file *file;
	struct operation operation;
	struct slice slice;
	char *line; /* behind the struct */
};

struct set_words { /* of a line; arrays are NUL-terminated */
	char name[NAMES_FILE_MAX + 1];
	char state[NAMES_FILE_MAX + 1];
	char slice[256]; /* with its brackets; "": all elements */
	const char *expression;
};

/* Copies the first `length` bytes of *at and moves *at behind them.  False: `to` is too small,
 * or length is 0.
 */
static bool take(const char **at, size_t length, char *to, size_t size)
{
	if (!length || length >= size)
		return false;
	memcpy(to, *at, length);
	to[length] = '\0';
	*at += length;
	return true;
}

/* Splits a line.  A parameter's name may have blanks and brackets, a state's has neither. */
static bool split(struct set_words *w, const char *at)
{
	static const char folder[] = "params/";
	const char *close;

	*w = (struct set_words){ .slice = "" };
	at += strspn(at, " ");
	if (strncmp(at, folder, strlen(folder)) != 0)
		return false;
	at += strlen(folder);
	if (!take(&at, strcspn(at, "/"), w->name, sizeof(w->name)) || *at++ != '/' ||
	    !take(&at, strcspn(at, "[ "), w->state, sizeof(w->state)))
		return false;
	if (*at == '[') {
		close = strchr(at, ']');
		if (!close || !take(&at, (size_t)(close + 1 - at), w->slice, sizeof(w->slice)))
			return false;
	}
	w->expression = at + strspn(at, " ");
	return w->expression > at && *w->expression;
}

/* Finds the state, and the cells that the slice selects.  Errors of tree_lookup and cells_init.
 */
static int find_cells(struct fs *fs, const struct set_words *w, struct engine_address *address,
		      struct cells *cells)
{
	struct tree_entry param, state;
	struct engine_param is;
	int rc = tree_lookup(&fs->tree, (struct node){ .kind = NODE_PARAMS }, w->name, &param);

	if (!rc)
		rc = tree_lookup(&fs->tree, param.node, w->state, &state);
	if (!rc && state.node.kind != NODE_STATE) {
		tree_forget(&fs->tree, tree_inode(state.node), 1);
		rc = -ENOENT;
	}
	if (!rc && !state.has_state)
		rc = tree_state(&fs->tree, state.node, &state.state);
	if (rc)
		return rc;
	if (!(state.state.flags & ENGINE_STATE_WRITABLE))
		return -EACCES;
	*address = tree_address(&fs->tree, state.node);
	if (!engine_param(fs->engine, param.node.item, &is))
		return -ENOENT;
	return cells_init(cells, w->slice, &state.state, &is);
}

static void log_refused(const char *line, int rc, enum frag_dtype dtype)
{
	log_warn(".frag/control: %s: %s", line,
		 rc == -EINVAL ? "expected \"set params/NAME/STATE[SLICE] EXPRESSION\", where "
				 "EXPRESSION is zero, = NUMBER, or *=, /=, +=, -= and a number"
		 : rc == -EDOM ? "a division by zero"
		 : rc == -ERANGE ? "the dtype has no such number"
		 : rc == -ENOENT ? "there is no such state, or it has no such elements"
		 : rc == -EOPNOTSUPP
			 ? dtype ? "the dtype has no such operation"
				 : "the owners of the elements cannot compute them: write them"
			 : strerror(-rc));
}

static void done(struct engine_write *write, int result)
{
	struct set *set = write->owner;
	struct request *r = set->request;

	request_done(r);
	if (result == -EOPNOTSUPP)
		log_refused(set->line, result, 0);
	if (result)
		fuse_reply_err(r->req, request_error(result));
	else
		fuse_reply_write(r->req, r->size);
	engine_file_close(set->file);
	free(set);
	request_put(r);
}

static int start(struct handle *h, fuse_req_t req, size_t size, struct set *set)
{
	struct request *r = request_get(&h->fs->requests, req, h);

	if (!r)
		return -ENOMEM;
	handle_ref(h);
	set->request = r;
	r->kind = REQUEST_WRITE;
	r->size = size;
	r->write = (struct engine_write){ .file = set->file,
					  .operation = &set->operation,
					  .slice = &set->slice,
					  .thread = fuse_req_ctx(req)->pid,
					  .done = done,
					  .owner = set };
	/* the result is not used: if a signal came first, request_submitted cancels */
	request_arm(r);
	engine_write(h->fs->engine, &r->write);
	request_submitted(r);
	return 0;
}

int set_line(fuse_req_t req, const struct deferred_call *c)
{
	struct handle *h = (struct handle *)(uintptr_t)c->file->fh;
	struct engine_address address;
	struct cells cells = { .dtype = 0 };
	struct set_words words;
	struct set *set;
	uint64_t bytes;
	int rc = split(&words, c->name + strlen(SET_WORD))
			 ? find_cells(h->fs, &words, &address, &cells)
			 : -EINVAL;

	if (rc == -EAGAIN)
		return rc;
	set = rc ? NULL : calloc(1, sizeof(*set) + strlen(c->name) + 1);
	if (!rc && !set)
		rc = -ENOMEM;
	if (!rc)
		rc = operation_parse(&set->operation, cells.dtype, words.expression);
	if (rc) {
		log_refused(c->name, rc, cells.dtype);
		free(set);
		return rc == -EDOM ? -EINVAL : rc;
	}
	set->slice = cells.slice;
	set->line = strcpy((char *)(set + 1), c->name);
	rc = engine_file_open(h->fs->engine, &address, &set->file, &bytes);
	if (!rc)
		rc = start(h, req, c->size, set);
	if (rc && set->file)
		engine_file_close(set->file);
	if (rc)
		free(set);
	return rc;
}
