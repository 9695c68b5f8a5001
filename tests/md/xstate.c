/*
 * For LD_PRELOAD beneath user-mode Linux, whose kernel 6.1 knows at most 2696 bytes of a processor's extended state and
 * ends at once where there is more (AMX): PTRACE_SETREGSET wants all of it or nothing. Here the part that the caller
 * knows is laid over the state as it is, and all of it is set. See docs/explanation/md.md.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char state[65536] __attribute__((aligned(64)));

static long set_state(long pid, const struct iovec *part)
{
	struct iovec whole = { state, sizeof state };
	long got = syscall(SYS_ptrace, (long)PTRACE_GETREGSET, pid, (long)NT_X86_XSTATE, &whole);

	if (got < 0)
		return got;
	memcpy(state, part->iov_base, part->iov_len < whole.iov_len ? part->iov_len : whole.iov_len);
	return syscall(SYS_ptrace, (long)PTRACE_SETREGSET, pid, (long)NT_X86_XSTATE, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list rest;
	long pid, address, word, done;
	void *data;

	va_start(rest, request);
	pid = va_arg(rest, long);
	address = va_arg(rest, long);
	data = va_arg(rest, void *);
	va_end(rest);
	if (request == PTRACE_SETREGSET && address == NT_X86_XSTATE)
		return set_state(pid, data);
	if (request != PTRACE_PEEKTEXT && request != PTRACE_PEEKDATA && request != PTRACE_PEEKUSER)
		return syscall(SYS_ptrace, (long)request, pid, address, data);
	/* The system call leaves the word where the library's function returns it. */
	done = syscall(SYS_ptrace, (long)request, pid, address, &word);
	return done < 0 ? done : word;
}
