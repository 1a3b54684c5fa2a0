/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* main of fuzz-NAME without a fuzzer: feeds the target each file of tests/fuzz/corpus/NAME, or
 * those named on the command line.
 */

#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <err.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Exactly as large as the file, so that a sanitizer sees a read past its end. */
static void replay(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct stat st;
	uint8_t *data;

	if (!file || fstat(fileno(file), &st))
		err(1, "%s", path);
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	if (!data || fread(data, 1, (size_t)st.st_size, file) != (size_t)st.st_size)
		err(1, "%s", path);
	LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
	free(data);
	fclose(file);
}

static int replay_folder(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	char path[4096 + NAME_MAX + 2];
	int n = 0;

	if (!dir)
		err(1, "%s", folder);
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		replay(path);
		n++;
	}
	closedir(dir);
	return n;
}

int main(int argc, char **argv)
{
	const char *top = getenv("top_srcdir");
	const char *name = basename(argv[0]);
	char folder[4096];
	int n;

	for (n = 1; n < argc; n++)
		replay(argv[n]);
	if (argc > 1)
		return 0;
	if (!strncmp(name, "fuzz-", 5))
		name += 5;
	snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/%s", top ? top : ".", name);
	n = replay_folder(folder);
	printf("%d inputs of %s\n", n, folder);
	return n ? 0 : 1;
}
