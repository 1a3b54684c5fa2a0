/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/mount-options.h"

#include <stdio.h>
#include <string.h>

/* Returns true if a word is the option: "name", or "name=" with any value. */
static bool is_option(const char *word, size_t length, const char *name)
{
	size_t n = strlen(name);

	if (name[n - 1] == '=')
		return length >= n && !strncmp(word, name, n);
	return length == n && !strncmp(word, name, n);
}

/* Returns true if an option is for mount(8), readers of fstab or systemd, not for fragfs. */
static bool is_for_others(const char *word, size_t length)
{
	static const char *const names[] = {
		"defaults",    "auto",          "noauto",   "nofail",
		"fail",        "_netdev",       "user",     "user=",
		"nouser",      "users",         "nousers",  "owner",
		"noowner",     "group",         "nogroup",  "comment=",
		"relatime",    "norelatime",    "silent",   "loud",
		"strictatime", "nostrictatime", "lazytime", "nolazytime",
		"diratime",    "nodiratime",    "rw",       NULL,
	};

	if (length > 1 && (!strncmp(word, "x-", 2) || !strncmp(word, "X-", 2)))
		return true;
	for (size_t i = 0; names[i]; i++)
		if (is_option(word, length, names[i]))
			return true;
	return false;
}

/* Returns the length of the first option, up to a comma outside of quotes. */
static size_t option_length(const char *word)
{
	bool quoted = false;
	size_t n;

	for (n = 0; word[n] && (quoted || word[n] != ','); n++)
		quoted ^= word[n] == '"';
	return n;
}

/* Appends an option.  mount(8) quotes values with commas, fragfs wants a backslash before each
 * comma; the quotes of an SELinux context stay, for the kernel.
 */
static char *put(char *end, const char *word, size_t length)
{
	bool keep = is_option(word, length, "context=");
	bool quoted = false;

	*end++ = ',';
	for (size_t i = 0; i < length; i++) {
		quoted ^= word[i] == '"';
		if (word[i] == '"' && !keep)
			continue;
		if (word[i] == ',' || (quoted && word[i] == '\\'))
			*end++ = '\\';
		*end++ = word[i];
	}
	*end = '\0';
	return end;
}

char *mount_options_for_fragfs(const char *options)
{
	size_t size = 2 * strlen(options ? options : "") + sizeof("rw,");
	char *kept = malloc(size), *end = kept;
	bool edit = false, ro = false;
	const char *word;
	size_t length;

	if (!kept)
		return NULL;
	end = stpcpy(end, "ro");
	for (word = options ? options : ""; *word; word += length + (word[length] == ',')) {
		length = option_length(word);
		if (is_option(word, length, "ro"))
			ro = true;
		else if (is_option(word, length, "edit"))
			edit = true;
		else if (length && !is_for_others(word, length)) {
			edit |= !strncmp(word, "overlay=", strlen("overlay="));
			end = put(end, word, length);
		}
	}
	if (edit && !ro)
		memcpy(kept, "rw", 2);
	return kept;
}
