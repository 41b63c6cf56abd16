/* stoker/copy.h: copies, synchronises and removes files and objects. */
#ifndef STOKER_COPY_H
#define STOKER_COPY_H

#include <stoker/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A running copy, synchronisation or removal. Names as in stoker/files.h. */
struct stoker_copy;

enum stoker_copy_kind {
    STOKER_COPY = 1,
    STOKER_SYNC,
    STOKER_REMOVE,
    STOKER_MOVE, /* as COPY; removes each source file after its copy is complete */
};
/* How `update` finds out that a destination file equals its source. The sizes must be equal, too.
 * TIME: the destination has the source's time of change, with the precision that it can store. An
 * object has the time of its upload: it must not be older than the source. CHECKSUM: the checksums
 * are equal that a store reports (CRC64NVME, MD5 and others, without reading the object), or that
 * are computed of local files; without a common checksum the file is copied. */
enum stoker_copy_compare {
    STOKER_COMPARE_TIME = 0,
    STOKER_COMPARE_SIZE, /* nothing else */
    STOKER_COMPARE_CHECKSUM,
};
/* Checksum by which a store verifies an upload. AUTO: CRC64NVME on Amazon S3; elsewhere the SHA-256
 * of the signature, which every server verifies. */
enum stoker_copy_check {
    STOKER_CHECK_AUTO = 0,
    STOKER_CHECK_CRC64NVME,
    STOKER_CHECK_CRC32C,
    STOKER_CHECK_SHA256,
    STOKER_CHECK_MD5, /* Content-MD5, the oldest */
};

struct stoker_copy_options {
    size_t struct_size;
    uint32_t kind;              /* enum stoker_copy_kind */
    const char *const *sources; /* borrowed until open returns, as all pointers below */
    size_t source_count;
    const char *destination; /* NULL for REMOVE */
    uint32_t recursive;      /* include everything below folders; SYNC: always */
    uint32_t update;         /* skip files whose destination is equal, see compare; SYNC: always */
    uint32_t no_clobber;     /* never replace an existing file or object: -EEXIST */
    uint32_t delete_extra;   /* SYNC: after copying, remove files that the source does not have */
    uint32_t
        unfinished_uploads; /* REMOVE: unfinished multipart uploads below it instead of objects */
    uint64_t unfinished_age_s; /* minimum age of these; default one day */
    uint32_t workers; /* concurrent files or parts; default 128, between local folders 2 a core */
    uint64_t part_bytes;       /* larger files are copied in parts; default 8 MiB, at least 5 MiB */
    uint64_t memory_bytes;     /* for parts in flight, from the engine's budget; default 256 MiB */
    uint32_t check;            /* enum stoker_copy_check */
    const char *storage_class; /* of new objects; NULL: the bucket's */
    const char *encryption, *encryption_key; /* "AES256"; "aws:kms" and its key; or NULL */
    const char *encryption_context; /* of "aws:kms": a JSON object with string values; or NULL */
    uint32_t compare;               /* enum stoker_copy_compare; for update and SYNC */
    uint32_t dry_run; /* change nothing; a note names each file that would be copied or removed */
    /* Select by names below the sources, in this order; the last filter that matches decides.
     * "+PATTERN" includes, "-PATTERN" excludes; what no filter matches is included, unless the
     * first filter includes. A pattern without '/' matches a file or folder name at any depth;
     * another one matches the path below the source, '**' any number of folders. A folder that
     * matches stands for everything below it. delete_extra removes nothing that is excluded. */
    const char *const *filters;
    size_t filter_count;
    uint64_t bytes_per_second_max; /* of all transfers together; 0: no limit */
    /* Only these files and folders below the only source, with their paths; NULL: all. */
    const char *const *names;
    size_t name_count;
    /* 1: COPY and SYNC leave out files and folders below a source that operating systems and
     * notebooks leave beside data (._x, .DS_Store, __MACOSX, Thumbs.db, .ipynb_checkpoints ...): a
     * note names each. delete_extra does not remove them. A source itself is copied. */
    uint32_t skip_system_files;
};

enum stoker_copy_note_kind {
    STOKER_NOTE_FAILED = 1,   /* it was not copied or removed: failure says why */
    STOKER_NOTE_LEFT_OUT,     /* a link, device or pipe that is not copied */
    STOKER_NOTE_NOT_DELETED,  /* by delete_extra: the source has a link, device or pipe there */
    STOKER_NOTE_WOULD_COPY,   /* dry_run: name is copied to `to` */
    STOKER_NOTE_WOULD_REMOVE, /* dry_run */
    STOKER_NOTE_SYSTEM_FILE,  /* left out by skip_system_files */
};

/* What happened to one file. */
struct stoker_copy_note {
    size_t struct_size;
    uint32_t kind; /* enum stoker_copy_note_kind */
    char name[8192];
    char to[8192];               /* WOULD_COPY; else empty */
    struct stoker_error failure; /* FAILED */
};

struct stoker_copy_progress {
    size_t struct_size;
    uint32_t listed;                       /* 1: files and bytes are final */
    uint64_t files, bytes;                 /* found so far */
    uint64_t files_done, bytes_done;       /* including skipped ones */
    uint64_t files_skipped, bytes_skipped; /* already there, by an earlier run or by update */
    uint64_t files_removed;                /* uploads, with unfinished_uploads */
    uint64_t files_failed;                 /* the other files are copied nevertheless */
    uint64_t links_left_out; /* links out of the source, links to folders; devices, pipes; a note
                                names each */
    uint64_t run_ns;
    uint64_t files_not_deleted; /* by delete_extra: the destination has something else at or below
                                   them */
    uint64_t system_files_left_out; /* by skip_system_files */
};

/* Starts to copy. A source that is a folder (recursive) is copied as its content, without its own
 * name; a file gets the destination's name, or a name below it if the destination is a folder, ends
 * in '/', or there are several sources. A name never has a part of a file: local files are renamed
 * when they are complete, objects become visible when they are complete. A killed copy resumes when
 * it is started again: parts of large files are reused if their hashes match (objects), or if the
 * source is the same file or version (files, until the machine restarts). A local copy has the
 * source's time of change and permissions; an existing destination keeps its permissions. Returns 0
 * and sets *copy_out; STOKER_ERROR_ARGUMENT if an option is invalid. */
STOKER_API int stoker_copy_open(struct stoker_copy **copy_out, struct stoker_engine *engine,
                                const struct stoker_copy_options *options,
                                struct stoker_error *error);
/* Waits up to timeout_ms for the end and fills *progress (may be NULL) in any case. Returns 1 while
 * it works; 0 once it is complete; else the first error: all files that do not depend on it are
 * copied (files_failed counts the others, a note names each), but delete_extra removes nothing. */
STOKER_API int stoker_copy_next(struct stoker_copy *copy, uint32_t timeout_ms,
                                struct stoker_copy_progress *progress, struct stoker_error *error);
/* Takes the next note; never waits. Returns 1 and fills *note; 0 if there is none now. At most
 * 10,000 wait, later ones are only counted in the progress; but a dry run waits until its notes
 * are taken. Any thread. */
STOKER_API int stoker_copy_next_note(struct stoker_copy *copy, struct stoker_copy_note *note,
                                     struct stoker_error *error);
/* Ends transfers and waits for that, at most one second. Then stoker_copy_next returns
 * STOKER_ERROR_CLOSED if nothing else failed before; its progress is final. If the copy had already
 * ended, or has not ended yet, it returns 0 or 1 as usual. Any thread, but not after close. */
STOKER_API void stoker_copy_stop(struct stoker_copy *copy);
/* Takes ownership; NULL is allowed. Stops, and waits for requests in flight. */
STOKER_API void stoker_copy_close(struct stoker_copy *copy);

#ifdef __cplusplus
}
#endif
#endif
