/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#include <stdio.h>

/* The ranges of phases as a tool of NVTX gets them that is loaded into the process. */

#if !defined(NVTX_LOAD_SEQUENCE_VERSION) || NVTX_LOAD_SEQUENCE_VERSION < 2

int main(void)
{
	printf("skip: built without a header of NVTX that loads a linked tool\n");
	return 77;
}

#else

#include "engine/base/base.h"
#include "engine/base/phase.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>

static struct {
	char begun[64]; /* names of the ranges that have begun, a blank behind each */
	nvtxRangeId_t ids, ended[8];
	unsigned nended;
} seen;

static nvtxRangeId_t NVTX_API on_start(const char *name)
{
	size_t used = strlen(seen.begun);

	snprintf(seen.begun + used, sizeof(seen.begun) - used, "%s ", name);
	return ++seen.ids;
}

static void NVTX_API on_end(nvtxRangeId_t id)
{
	if (seen.nended < ARRAY_SIZE(seen.ended))
		seen.ended[seen.nended] = id;
	seen.nended++;
}

static int NVTX_API attach(NvtxGetExportTableFunc_t get_table)
{
	const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
	NvtxFunctionTable table;
	unsigned size;

	if (!callbacks ||
	    !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) ||
	    size <= NVTX_CBID_CORE_RangeEnd)
		return 0;
	*table[NVTX_CBID_CORE_RangeStartA] = (NvtxFunctionPointer)on_start;
	*table[NVTX_CBID_CORE_RangeEnd] = (NvtxFunctionPointer)on_end;
	return 1;
}

/* DeepSpeed's instrument_w_nvtx leaves the range open where its function raises. */
START_TEST(a_range_ends_once_on_errors_too)
{
	struct phase_span commit = { 0 }, view = { 0 };

	InitializeInjectionNvtx2_fnptr = attach; /* the header calls it with the first range */
	phase_begin(PHASE_COMMIT, &commit);
	phase_begin(PHASE_VIEW, &view);
	ck_assert_str_eq(seen.begun, "commit view ");
	ck_assert_uint_eq(seen.nended, 0);
	phase_end(PHASE_COMMIT, &commit, -EIO);
	phase_end(PHASE_COMMIT, &commit, -EIO);
	ck_assert_uint_eq(seen.nended, 1);
	ck_assert_uint_eq(seen.ended[0], 1);
	phase_end(PHASE_VIEW, &view, 0);
	ck_assert_uint_eq(seen.nended, 2);
	ck_assert_uint_eq(seen.ended[1], 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("phase-nvtx");
	TCase *t = tcase_create("phase-nvtx");

	tcase_add_test(t, a_range_ends_once_on_errors_too);
	return run_suite(s, t);
}

#endif
