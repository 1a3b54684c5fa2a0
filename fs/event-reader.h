/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_EVENT_READER_H
#define FS_EVENT_READER_H

/* Reading /events: what there is, or, when there is nothing, a wait that a signal ends, and the
 * end of the job, or of the mount, by the end of the file.
 */

#include "fs/handle.h"

void event_reader_read(struct handle *h, fuse_req_t req, size_t size, int flags);

#endif
