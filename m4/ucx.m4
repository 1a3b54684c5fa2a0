dnl SPDX-License-Identifier: Apache-2.0
dnl --with-ucx: the headers of UCX, which is loaded at run time and never linked.
AC_DEFUN([FRAG_UCX], [
  AC_ARG_WITH([ucx],
    [AS_HELP_STRING([--with-ucx=yes|no|auto], [messages by UCX: its headers must be there, must not be
      looked for, or are used where found (the default)])],
    [], [with_ucx=auto])
  have_ucx=no
  AS_IF([test "$with_ucx" != no],
    [PKG_CHECK_MODULES([UCX], [ucx >= 1.12], [have_ucx=yes], [have_ucx=no])])
  AS_IF([test "$have_ucx" = yes], [
    AC_DEFINE([HAVE_UCX], [1], [the headers of UCX are there])
  ], [test "$with_ucx" = yes], [
    AC_MSG_ERROR([--with-ucx: no UCX 1.12 or later: $UCX_PKG_ERRORS])
  ])
  AM_CONDITIONAL([HAVE_UCX], [test "$have_ucx" = yes])
])
