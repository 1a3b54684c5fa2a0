/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/mounts.h"
#include "mount-helpers/status.h"
#include "mount-helpers/checkpoint-status.h"
#include "mount-helpers/settings.h"
#include "mount-helpers/listing.h"
#include "mount-helpers/target.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* Counts failures, and collects what is shown for JSON; mounts NULL: the output is text. */
struct report {
	const struct call *call;
	json_t *mounts;
	int failed;
};

static void show(struct report *report, struct status *s)
{
	if (report->mounts)
		json_array_append_new(report->mounts, status_json(s));
	else if (status_print(s, report->call))
		report->failed++;
	status_fini(s);
}

static void fail(struct report *report, const char *why)
{
	call_fail("%s", why);
	report->failed++;
}

static void show_checkpoint(struct report *report, const char *mountpoint)
{
	json_t *object = NULL;
	char why[512];
	int rc;

	if (report->mounts) {
		object = checkpoint_status_json(mountpoint, why, sizeof(why));
		rc = json_array_append_new(report->mounts, object);
	} else {
		rc = checkpoint_status_print(mountpoint, stdout, why, sizeof(why));
	}
	if (rc)
		fail(report, why);
}

static void show_mount(struct report *report, const char *mountpoint, const char *source)
{
	struct status s;
	char why[512];

	if (target_is_checkpoint(mountpoint))
		show_checkpoint(report, mountpoint);
	else if (status_of_mount(&s, mountpoint, source, why, sizeof(why)))
		fail(report, why);
	else
		show(report, &s);
}

static const char *source_of(const char *path, const struct mount_entry *mounts, int n)
{
	char real[PATH_MAX];

	if (!realpath(path, real))
		return path;
	for (int i = n; i-- > 0;) {
		if (!strcmp(mounts[i].mountpoint, real))
			return mounts[i].source;
	}
	return path;
}

static void show_address(struct report *report, const char *address)
{
	struct status s;
	char why[512];

	if (status_of_job(&s, address, why, sizeof(why)))
		fail(report, why);
	else
		show(report, &s);
}

static void show_named(struct report *report, const char *name,
		       const struct mount_entry *mounts, int n)
{
	struct stat st;
	char why[512];

	if (!strchr(name, '/') && strchr(name, ':') && stat(name, &st)) {
		show_address(report, name);
	} else if (stat(name, &st)) {
		snprintf(why, sizeof(why), "%s: %s", name, strerror(errno));
		fail(report, why);
	} else {
		show_mount(report, name, source_of(name, mounts, n));
	}
}

/* Shows the mount, job or checkpoint of -j; a checkpoint is mounted for it. */
static int show_job(struct report *report, const char *name)
{
	char mountpoint[TARGET_PATH_MAX], source[PATH_MAX];
	int rc;

	if (target_resolve(name, source) == TARGET_JOB) {
		show_address(report, source);
		return 0;
	}
	rc = target_open(name, false, mountpoint);
	if (!rc)
		show_mount(report, mountpoint, name);
	return rc;
}

static json_t *machine_json(const struct settings *m)
{
	return json_pack("{s:s s:s s:s s:b}", "transparent_hugepage", m->huge_pages,
			 "shmem_enabled", m->shared_huge_pages, "ptrace_scope", m->yama,
			 "dev_fuse", m->fuse);
}

static void print_machine(const struct settings *m)
{
	printf("this machine: huge pages %s, shared huge pages %s, ptrace_scope %s, /dev/fuse "
	       "%s\n",
	       m->huge_pages, m->shared_huge_pages, m->yama,
	       m->fuse ? "usable" : "not for this user");
}

static int finish(struct report *report)
{
	struct settings machine;

	settings_read(&machine);
	if (!report->mounts) {
		if (!call_has(report->call, 'H'))
			print_machine(&machine);
	} else if (call_print_json(json_pack(
			   "{s:o s:o s:o}", "output_version", call_output_version(report->call),
			   "machine", machine_json(&machine), "mounts", report->mounts))) {
		return FRAGCTL_FAILURE;
	}
	return report->failed ? FRAGCTL_FAILURE : 0;
}

int status_run(const struct call *call)
{
	struct report report = { .call = call,
				 .mounts = call_has(call, 'J') ? json_array() : NULL };
	struct mount_entry *mounts = NULL;
	struct listing columns;
	int n, rc = 0;

	if (listing_init(&columns, call, status_columns))
		return FRAGCTL_USAGE;
	listing_fini(&columns);
	if (call->job && *call->words)
		return call_usage("-j %s, or %s: not both", call->job, *call->words);
	n = call->job ? 0 : mounts_read_own(*call->words != NULL, &mounts);
	if (n < 0)
		return call_fail("/proc/self/mounts: %s", strerror(-n));
	for (int i = 0; !*call->words && i < n; i++)
		show_mount(&report, mounts[i].mountpoint, mounts[i].source);
	if (call->job)
		rc = show_job(&report, call->job);
	else if (!*call->words && !n && !report.mounts && !call_has(call, 'H'))
		puts("nothing is mounted by fragfs here (fragctl jobs: what can be)");
	for (char **name = call->words; *name; name++)
		show_named(&report, *name, mounts, n);
	mounts_free(mounts, n);
	return rc ? rc : finish(&report);
}
