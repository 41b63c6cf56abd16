/* stoker/base.h: conventions and macros of all headers of libstoker.
 *
 * Returns    int: 0 or a count on success, negative on failure: -errno if an errno value describes
 *            the failure, else one of STOKER_ERROR_* (stoker/error.h). The argument
 *            `struct stoker_error *error` may be NULL in every function.
 * Options    The first field of an option structure is struct_size: set it to sizeof the structure.
 *            A zero field means the default. New versions add fields only at the end: a library
 *            takes missing fields as zero, and refuses a field that it does not know and that is
 *            not zero. In structures that the library fills in, struct_size is set likewise.
 * Ownership  "Borrowed": the library reads the pointer during the call only, unless stated
 *            otherwise. "Valid until X": the library owns the memory and frees it at X. An _open
 *            function sets its _out argument to an object that the caller owns and ends with
 *            _close. "Takes ownership": the object is gone after the call, even if the call fails.
 * Threads    One thread at a time uses an object, unless its comment says otherwise. "Any thread"
 *            means concurrent calls are safe.
 * Units      The end of a name: _bytes, _ns, _ms, _s; _max is an inclusive limit.
 * Effects    The library prints nothing, never exits the process, and has no callbacks. */
#ifndef STOKER_BASE_H
#define STOKER_BASE_H

#include <stddef.h>
#include <stdint.h>

#define STOKER_API __attribute__((visibility("default")))
#define STOKER_VERSION "0.1.0"

#define STOKER_NO_OFFSET UINT64_MAX
#define STOKER_NO_SAMPLE UINT64_MAX
#define STOKER_NO_RETRIES UINT32_MAX
#define STOKER_UNKNOWN UINT64_MAX

#endif
