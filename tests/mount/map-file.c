/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* map-file FILE: writes what a shared mapping of FILE has, page by page from its end. */

enum { PAGE = 4096 };

static int put_pages(const char *at, size_t size)
{
	for (size_t page = (size + PAGE - 1) / PAGE; page-- > 0;) {
		size_t begin = page * PAGE, n = size - begin < PAGE ? size - begin : PAGE;

		if (pwrite(STDOUT_FILENO, at + begin, n, (off_t)begin) != (ssize_t)n) {
			perror("standard output");
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
	struct stat st;
	char *at;

	if (fd < 0 || fstat(fd, &st)) {
		perror(argc == 2 ? argv[1] : "usage: map-file FILE");
		return 1;
	}
	at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	return put_pages(at, (size_t)st.st_size);
}
