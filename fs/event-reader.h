/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_EVENT_READER_H
#define FS_EVENT_READER_H

/* Reads of /events, a file of lines.  A read gives the lines that have come; when there are
 * none it waits for the next line, and a signal interrupts it.  The file ends when the job or
 * the mount does.
 */

#include "fs/handle.h"

/* Replies, now or when a line has come.  flags are open(2)'s: with O_NONBLOCK the reply is
 * EAGAIN in place of a wait.
 */
void event_reader_read(struct handle *h, fuse_req_t req, size_t size, int flags);

#endif
