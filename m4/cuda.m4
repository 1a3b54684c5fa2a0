dnl SPDX-License-Identifier: Apache-2.0
dnl --with-cuda: the headers of the CUDA runtime, which is loaded at run time and never linked; nvcc, for
dnl kernels; and where nccl.h is beside them, NCCL, loaded in the same way.
AC_DEFUN([FRAG_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=yes|no|auto|PATH], [devices by CUDA: its headers must be there, must
      not be looked for, or are used where found (the default); PATH: they must be there; auto=PATH: may])],
    [], [with_cuda=auto])
  cuda_at=
  AS_CASE([$with_cuda],
    [yes|no|auto], [],
    [auto=*|yes=*], [
      cuda_at=`AS_ECHO(["$with_cuda"]) | sed 's/^@<:@^=@:>@*=//'`
      with_cuda=`AS_ECHO(["$with_cuda"]) | sed 's/=.*//'`
    ],
    [cuda_at=$with_cuda with_cuda=yes])
  have_cuda=no have_nvcc=no have_nccl=no
  AS_IF([test "$with_cuda" != no], [FRAG_CUDA_LOOK])
  AS_IF([test "$have_cuda" = yes], [
    AC_DEFINE([HAVE_CUDA], [1], [the headers of the CUDA runtime are there])
    AS_IF([test "$have_nvcc" = yes], [AC_DEFINE([HAVE_NVCC], [1], [kernels are compiled])])
    AS_IF([test "$have_nccl" = yes], [AC_DEFINE([HAVE_NCCL], [1], [the header of NCCL is there])])
  ], [test "$with_cuda" = yes], [
    AC_MSG_ERROR([--with-cuda: no cuda_runtime_api.h${cuda_at:+ below $cuda_at}])
  ])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([NVCC])
  AM_CONDITIONAL([HAVE_CUDA], [test "$have_cuda" = yes])
  AM_CONDITIONAL([HAVE_NVCC], [test "$have_nvcc" = yes])
  AM_CONDITIONAL([HAVE_NCCL], [test "$have_nccl" = yes])
])

dnl After the compiler's own folders, so that nothing of a toolkit comes before what it has.
AC_DEFUN([FRAG_CUDA_LOOK], [
  frag_save_CPPFLAGS=$CPPFLAGS
  AS_IF([test -z "$cuda_at"], [FRAG_CUDA_TRY([], [])])
  for frag_at in "$cuda_at" "$CUDA_HOME" /usr/local/cuda; do
    AS_IF([test "$have_cuda" = no && test -f "$frag_at/include/cuda_runtime_api.h"],
      [FRAG_CUDA_TRY([-idirafter $frag_at/include], [$frag_at/bin])])
    AS_IF([test -n "$cuda_at"], [break])
  done
  CPPFLAGS=$frag_save_CPPFLAGS
])

AC_DEFUN([FRAG_CUDA_TRY], [
  CPPFLAGS="$frag_save_CPPFLAGS $1"
  AC_MSG_CHECKING([for cuda_runtime_api.h m4_default([$1], [as it is])])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>
    int new_enough[CUDART_VERSION >= 12000 ? 1 : -1];]], [])], [have_cuda=yes CUDA_CPPFLAGS="$1"])
  AC_MSG_RESULT([$have_cuda])
  AS_IF([test "$have_cuda" = yes], [
    AC_PATH_PROG([NVCC], [nvcc], [no], [m4_default([$2], [/usr/local/cuda/bin])$PATH_SEPARATOR$PATH])
    AC_MSG_CHECKING([whether nvcc compiles for sm_80 and sm_90])
    AS_ECHO(['__global__ void f(int *a) { *a = 1; }']) >conftest.cu
    AS_IF([test "$NVCC" != no && $NVCC $NVCC_TARGETS -fatbin -o conftest.fatbin conftest.cu >&AS_MESSAGE_LOG_FD 2>&1],
      [have_nvcc=yes])
    rm -f conftest.cu conftest.fatbin
    AC_MSG_RESULT([$have_nvcc])
    AC_MSG_CHECKING([for nccl.h])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <nccl.h>
      int new_enough[NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0) ? 1 : -1];]], [])], [have_nccl=yes])
    AC_MSG_RESULT([$have_nccl])
    AC_CHECK_HEADER([nvtx3/nvToolsExt.h], [AC_DEFINE([HAVE_NVTX], [1], [the header of NVTX is there])])
  ])
])
