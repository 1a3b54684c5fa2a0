dnl SPDX-License-Identifier: Apache-2.0
dnl --with-hwloc: the headers of hwloc, which is loaded at run time and never linked.
AC_DEFUN([FRAG_HWLOC], [
  AC_ARG_WITH([hwloc],
    [AS_HELP_STRING([--with-hwloc=yes|no|auto], [cores and memory nodes by hwloc: its headers must be there,
      must not be looked for, or are used where found (the default)])],
    [], [with_hwloc=auto])
  have_hwloc=no
  AS_IF([test "$with_hwloc" != no],
    [PKG_CHECK_MODULES([HWLOC], [hwloc >= 2.0], [have_hwloc=yes], [have_hwloc=no])])
  AS_IF([test "$have_hwloc" = yes], [
    AC_DEFINE([HAVE_HWLOC], [1], [the headers of hwloc are there])
  ], [test "$with_hwloc" = yes], [
    AC_MSG_ERROR([--with-hwloc: no hwloc 2.0 or later: $HWLOC_PKG_ERRORS])
  ])
])
