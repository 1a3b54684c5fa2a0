/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/state-file.h"

#include "engine/base/base.h"
#include "engine/base/dtype.h"
#include "engine/base/fd.h"
#include "mount-helpers/target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { VALUES_AT_ONCE = 1024 };

static int read_dtype(struct state_file *s)
{
	char name[64];
	ssize_t length = fgetxattr(s->fd, "user.frag.dtype", name, sizeof(name) - 1);

	if (length < 0)
		return -errno;
	name[length] = '\0';
	for (int dtype = FRAG_F32; frag_dtype_size((enum frag_dtype)dtype); dtype++)
		if (!strcmp(frag_dtype_name((enum frag_dtype)dtype), name)) {
			s->dtype = (enum frag_dtype)dtype;
			s->element = frag_dtype_size(s->dtype);
			return 0;
		}
	return -EOPNOTSUPP;
}

/* Reads the parameter's shape.  A state with other elements than the parameter's, such as a
 * step, is a number, or a row of numbers, as the mount's views of it are.
 */
static void read_shape(struct state_file *s, const char *mountpoint, const struct param *param)
{
	char text[1024], *at = text, *end;
	uint64_t numel = 1;
	bool fits = true;

	params_value(mountpoint, param, "shape", text, sizeof(text));
	for (s->ndim = 0; s->ndim < FRAG_DIMS_MAX; s->ndim++, at = end) {
		s->shape[s->ndim] = strtoull(at, &end, 10);
		if (end == at)
			break;
		fits = fits && u64_mul(numel, s->shape[s->ndim], &numel);
	}
	if (!fits || numel != s->numel) {
		s->shape[0] = s->numel;
		s->ndim = s->numel != 1;
	}
}

int state_file_open(struct state_file *s, const char *mountpoint, const struct param *param,
		    const char *state, int flags)
{
	char path[PATH_MAX], name[PATH_MAX];
	struct stat st;
	int e = 0;

	*s = (struct state_file){ 0 };
	snprintf(path, sizeof(path), "%s/%s/%s", mountpoint, param->path, state);
	s->fd = open(path, flags | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st))
		e = errno;
	else
		e = -read_dtype(s);
	if (e) {
		state_file_close(s);
		snprintf(name, sizeof(name), "%s/%s", param->name, state);
		return target_fail(mountpoint, name, e);
	}
	s->numel = (uint64_t)st.st_size / s->element;
	read_shape(s, mountpoint, param);
	return 0;
}

void state_file_close(struct state_file *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

int state_file_read(const struct state_file *s, uint64_t first, void *into, uint64_t n)
{
	return fd_read_all(s->fd, into, n * s->element, first * s->element);
}

/* Converts by float32, which is exact for all dtypes of at most 16 bits. */
static bool convert(enum frag_dtype dtype, const void *from, uint64_t n, double *values)
{
	float narrow[VALUES_AT_ONCE];
	size_t size = frag_dtype_size(dtype);

	for (uint64_t at = 0, count; at < n; at += count) {
		count = n - at < VALUES_AT_ONCE ? n - at : VALUES_AT_ONCE;
		if (dtype_convert(FRAG_F32, narrow, dtype, (const char *)from + at * size,
				  count))
			return false;
		for (uint64_t i = 0; i < count; i++)
			values[at + i] = (double)narrow[i];
	}
	return true;
}

#define WIDEN(type)                                                                            \
	for (uint64_t i = 0; i < n; i++) {                                                     \
		type element;                                                                  \
		memcpy(&element, (const char *)elements + i * sizeof(element),                 \
		       sizeof(element));                                                       \
		values[i] = (double)element;                                                   \
	}                                                                                      \
	return true

/* Returns the dtype of the real and the imaginary part; of other dtypes, that dtype. */
static enum frag_dtype component_of(enum frag_dtype dtype)
{
	switch (dtype) {
	case FRAG_C32:
		return FRAG_F16;
	case FRAG_C64:
		return FRAG_F32;
	case FRAG_C128:
		return FRAG_F64;
	default:
		return dtype;
	}
}

unsigned state_file_components(const struct state_file *s)
{
	return component_of(s->dtype) == s->dtype ? 1 : 2;
}

bool state_file_values(const struct state_file *s, const void *elements, uint64_t n,
		       double *values)
{
	enum frag_dtype dtype = component_of(s->dtype);

	n *= state_file_components(s);
	switch (dtype) {
	case FRAG_F64:
		WIDEN(double);
	case FRAG_I32:
		WIDEN(int32_t);
	case FRAG_U32:
		WIDEN(uint32_t);
	case FRAG_I64:
		WIDEN(int64_t);
	case FRAG_U64:
		WIDEN(uint64_t);
	default:
		return convert(dtype, elements, n, values);
	}
}

const char *state_file_main(char **states)
{
	for (char **state = states; *state; state++)
		if (!strcmp(*state, "fp32"))
			return *state;
	for (int dtype = FRAG_F32; frag_dtype_size((enum frag_dtype)dtype); dtype++)
		for (char **state = states; *state; state++)
			if (!strcmp(*state, dtype_lp_key((enum frag_dtype)dtype)))
				return *state;
	return *states;
}
