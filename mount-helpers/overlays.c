/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/one-line.h"
#include "engine/checkpoint/overlay/overlay.h"
#include "mount-helpers/call.h"
#include "mount-helpers/commands.h"
#include "mount-helpers/progress.h"

#include <inttypes.h>
#include <limits.h>

static int print(const char *path, char *why, size_t whysize)
{
	struct overlay o;
	int rc = overlay_look(&o, path, why, whysize);

	if (rc)
		return rc;
	printf("%s: an overlay\n", path);
	if (o.checkpoint) {
		printf("  %-10s ", "checkpoint");
		one_line_put(stdout, o.checkpoint);
		putchar('\n');
	}
	printf("  %-10s %s\n  %-10s %" PRIu64 "\n  %-10s %" PRIu32 "\n  %-10s %" PRIu64 "\n",
	       "mounted", o.mounted ? "yes" : "no", "edits", o.edits, "files", o.nfiles,
	       "bytes", o.bytes);
	for (uint32_t i = 0; i < o.nfiles; i++) {
		printf("  %20" PRIu64 " ", o.files[i].bytes);
		one_line_put(stdout, o.files[i].name);
		putchar('\n');
	}
	overlay_fini(&o);
	return 0;
}

static json_t *text_json(const char *text)
{
	return text ? one_line_json(text) : json_null();
}

static json_t *to_json(const char *path, char *why, size_t whysize)
{
	json_t *files = json_array(), *object;
	struct overlay o;

	if (overlay_look(&o, path, why, whysize)) {
		json_decref(files);
		return NULL;
	}
	for (uint32_t i = 0; i < o.nfiles; i++)
		json_array_append_new(files,
				      json_pack("{s:o s:I}", "name", text_json(o.files[i].name),
						"bytes", (json_int_t)o.files[i].bytes));
	object = json_pack("{s:o s:o s:b s:I s:I s:o}", "path", text_json(o.path), "checkpoint",
			   text_json(o.checkpoint), "mounted", o.mounted, "edits",
			   (json_int_t)o.edits, "bytes", (json_int_t)o.bytes, "files", files);
	overlay_fini(&o);
	if (!object)
		snprintf(why, whysize, "no memory");
	return object;
}

int overlays_run(const struct call *call)
{
	char why[PATH_MAX + 100];
	bool json = call_has(call, 'J');
	json_t *object = json ? to_json(*call->words, why, sizeof(why)) : NULL;

	if (object)
		return call_print_object(call, "overlay", object);
	if (!json && !print(*call->words, why, sizeof(why)))
		return 0;
	return call_fail("%s", why);
}

/* Writes the overlay's edits into the named checkpoint or, without a name, into the checkpoint
 * whose path the overlay has.
 */
int overlays_run_commit(const struct call *call)
{
	const char *path = call->words[0], *checkpoint = call->words[1];
	char why[PATH_MAX + 100];
	struct progress progress;
	struct overlay o;
	int rc;

	progress_begin(&progress, "committing");
	rc = overlay_commit(&o, path, checkpoint, why, sizeof(why));
	progress_end(&progress);
	if (rc)
		return call_fail("%s", why);
	checkpoint = checkpoint ? checkpoint : o.checkpoint;
	if (call_has(call, 'J')) {
		rc = call_print_object(
			call, "commit",
			json_pack("{s:o s:o s:I s:I s:I}", "path", text_json(path),
				  "checkpoint", text_json(checkpoint), "edits",
				  (json_int_t)o.edits, "bytes", (json_int_t)o.bytes, "files",
				  (json_int_t)o.nfiles));
	} else {
		printf("%s: edits %" PRIu64 ", bytes %" PRIu64 ", files %" PRIu32
		       ": written to ",
		       path, o.edits, o.bytes, o.nfiles);
		one_line_put(stdout, checkpoint);
		putchar('\n');
	}
	overlay_fini(&o);
	return rc;
}

int overlays_run_discard(const struct call *call)
{
	char why[PATH_MAX + 100];

	if (overlay_discard(*call->words, why, sizeof(why)))
		return call_fail("%s", why);
	if (!call_has(call, 'J'))
		return 0;
	return call_print_object(call, "discard",
				 json_pack("{s:o}", "path", text_json(*call->words)));
}
