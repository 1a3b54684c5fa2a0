/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_CATALOG_ORACLE_DUMP_H
#define TESTS_UNIT_CATALOG_ORACLE_DUMP_H

/* Checks the layouts of one dump of a running DeepSpeed engine, folder/sSTAGE-wW-MODEL[-subN]:
 * rankR.json has the shapes, the groups and what DeepSpeed says of each fragment;
 * rankR_gG_STATE.f32 the flat partitions (of group or, stage 3, sub-group G), and
 * full_STATE_NAME.f32 the full tensors it returned.  Fails the Check test that calls it.
 */
void oracle_dump_check(const char *folder, const char *name);

#endif
