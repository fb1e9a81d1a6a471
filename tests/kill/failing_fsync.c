/* Preloaded before the C library: the n-th fsync or fdatasync of the process fails, SQLite's own ones too.

   The data is where the kernel has it: written, not known to be durable. That is what a failing disk leaves. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

long syncs_seen = 0;    /* calls so far */
long syncs_fail_at = 0; /* the first call that fails; 0: none */
long syncs_fail_to = 0; /* the last one */
int syncs_error = EIO;

static int fails(void) {
    long call = ++syncs_seen;
    if (syncs_fail_at == 0 || call < syncs_fail_at || call > syncs_fail_to) return 0;
    errno = syncs_error;
    return 1;
}

int fsync(int descriptor) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return fails() ? -1 : real(descriptor);
}

int fdatasync(int descriptor) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return fails() ? -1 : real(descriptor);
}
