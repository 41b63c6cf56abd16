#!/usr/bin/env python3
"""Refuse what the house style rules out and a script can see.

usage: tidy.py [ROOT]

Prints one line a finding, `path:line: rule: advice`, and exits with 1 if there is one.
scripts/tidy-exceptions.txt lists what may stay, each with its reason; an exception that excuses
nothing any more is a finding too.
"""
import bisect
import pathlib
import re
import sys
from collections import defaultdict, namedtuple

import rooms

LINES_MAX = 800
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6
COLUMNS_MAX = 100
# A room; tests and fuzz targets beside them do not count. With 12, two things that are always read
# together can share a room, and 12 names still fit on the screen beside their tests; with 8, rooms
# of one source had to stand alone, and the list of rooms grew instead.
SOURCES_MAX = 12
# Code that parses untrusted bytes has a fuzz target: these rooms, these files, and
# each file that calls one of these readers.
PARSER_ROOMS = {"format", "format/tar", "format/compress", "format/manifest", "format/value",
                "decode/codec", "decode/jpeg", "decode/png", "index", "index/foreign",
                "order/predicate", "checkpoint/pickle"}
# By name, which is unique: a file that moves keeps its rule.
PARSER_FILES = {"braces.c", "manifest.c", "index_journal.c", "index_stamp.c", "fault_wire.c",
                "ini.c", "checksum.c", "sampling_table.c"}
READERS = re.compile(r"\b(json_load\w*|XML_Parse|msgpack_unpack_next|inflate|ZSTD_decompressStream"
                     r"|BZ2_bzDecompress|lzma_code|jpeg_read_header|png_read_info|WebPDecode)\s*\(")
HEADER_WORDS = ("Owner", "Threads", "Memory", "Bound")
FOLDERS = ("include", "src", "python", "scripts", "bench", "examples", ".ci")
BARE_VALUE = re.compile(r"""(?:Error|_refuse)\(\s*f"((?!unknown|unsupported)[\w.]*(?: \w+)?[ =]?"""
                        r"""\{[^{}"]*\})"\s*,""")
SKIPPED = re.compile(r"build.*|\..*venv.*|__pycache__|.*\.egg-info|corpus|results|data")
EXCEPTIONS = "scripts/tidy-exceptions.txt"

# Calls that have one home. Each: rule, names, where they are at home, what to do instead.
CALLS = [
    ("memory", "malloc calloc realloc free strdup strndup posix_memalign aligned_alloc",
     r"src/base/mem\.c", "use base/mem.h, so that tests can fail and count it"),
    ("number", "strtol strtoll strtoul strtoull strtoumax strtoimax strtof strtod strtold strtod_l",
     r"src/base/text/parse_number\.c",
     "use base/text/parse_number.h: these depend on the locale, or report overflow by errno"),
    ("output", "printf vprintf fprintf vfprintf puts fputs putchar perror exit _exit abort",
     None, "return a struct stoker_error; only the command speaks to the user"),
    ("outside", "open openat creat fopen read pread preadv readv clock_gettime gettimeofday time"
     " rand random srand getrandom nanosleep usleep sleep",
     # The last ones are memory that processes share, and locked files of this user.
     r"src/io/(posix/)?[^/]*"
     r"|src/storage/(throttle/shared_limits_file|upload/upload_record|cache/cache_[a-z]*)\.c",
     "go through io/io.h, so that tests can simulate it"),
]
# Programs that speak to the user and own their process: they may call what they like.
PROGRAMS = {"cli", "fault", "programs/cli", "programs/fault_proxy"}
# Words that stood for terms of the field in an early version, and the term for each. Formats and
# names of the system that contain one are in the list of exceptions.
WORDS = {"told": "reported", "untold": "unknown", "brought": "prefetched", "errand": "request",
         "errands": "requests", "desk": "queue", "purse": "budget", "lent": "borrowed",
         "mend": "repair", "mends": "repairs", "mended": "repaired", "nobody": "none",
         "somebody": "another process", "whoever": "the process that", "stranger": "other user",
         "strangers": "other users", "believe": "trust", "believes": "trusts",
         "believed": "trusted"}
WORD = re.compile(r"(?<![A-Za-z])(?<!CURLOPT_)(" + "|".join(WORDS) + r")(?![A-Za-z])", re.I)
# Floors in which each snprintf of a text (%s) has a comment why the text fits, or that it may be
# cut, unless its target is a text for people (CUT_TEXTS). Other floors do not require it yet.
CUT_FLOORS = {"base", "format", "index", "dataset", "decode", "order", "engine", "loader"}
CUT_TEXTS = {"what", "where", "advice", "note", "reason", "warning", "detail", "why", "failure"}
UNSAFE = "strcpy strcat sprintf vsprintf strtok atoi atol atof gets"

Finding = namedtuple("Finding", "path line rule name advice")
Function = namedtuple("Function", "name line lines parameters")


class Source:
    """A file, with views of it that a regular expression may trust."""

    def __init__(self, root, path):
        self.path = path.relative_to(root).as_posix()
        self.name = path.name
        self.stem = path.stem
        self.text = path.read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.splitlines()
        self.is_c = path.suffix in (".c", ".h")
        self.room = rooms.room_of(root, path)
        self.is_test = self.room == "test" or self.stem.endswith(("_test", "_fuzz"))
        self.code = blank(self.text) if self.is_c else ""
        self.starts = [0] + [match.end() for match in re.finditer("\n", self.text)]

    def line_at(self, offset):
        return bisect.bisect_right(self.starts, offset)

    def is_library(self):
        """In a room of the library: programs, Python and tests may call what they like."""
        return self.room not in {None, "test"} | PROGRAMS and not self.is_test


def blank(text):
    """The text with comments, strings and characters blanked; every offset stays."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.S)


def without_directives(code):
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match[0]),
                  code, flags=re.M)


def functions(source):
    """The functions that a C file defines: blocks at depth 0 that follow a parameter list."""
    code = without_directives(source.code)
    depth, since, found = 0, 0, None
    for match in re.finditer(r"[{};]", code):
        if match[0] == "{":
            head = re.sub(r"__attribute__\s*\(\(.*?\)\)", lambda m: " " * len(m[0]),
                          code[since:match.start()], flags=re.S)
            if depth == 0 and head.rstrip().endswith(")"):
                found = parameter_list(head) + (since + len(head) - len(head.lstrip()),)
            if depth == 0 and re.fullmatch(r"\s*extern\s*", head):
                continue  # extern "C" {: its block is the file
            depth += 1
        elif match[0] == "}":
            depth = max(0, depth - 1)
            if depth == 0 and found:
                line = source.line_at(found[2])
                yield Function(found[0], line, source.line_at(match.start()) - line + 1, found[1])
                found = None
        if depth == 0:
            since = match.end()


def parameter_list(head):
    """Name and number of parameters of a declarator that ends with its list."""
    depth, commas, end = 0, 0, head.rindex(")")
    for at in range(end, -1, -1):
        depth += {")": 1, "(": -1}.get(head[at], 0)
        commas += head[at] == "," and depth == 1
        if depth == 0:
            break
    name = re.search(r"(\w+)\s*$", head[:at])
    inside = head[at + 1:end].strip()
    return (name[1] if name else "?", 0 if inside in ("", "void") else commas + 1)


def check_text(source):
    """Rules for every file that people write."""
    if len(source.lines) > LINES_MAX:
        yield (LINES_MAX + 1, "file-lines", "", f"{len(source.lines)} lines; split the file, "
               f"at most {LINES_MAX}")
    for number, line in enumerate(source.lines, 1):
        if len(line) > COLUMNS_MAX:
            yield number, "columns", "", f"{len(line)} columns; break the line at {COLUMNS_MAX}"
        if "\t" in line:
            yield number, "tab", "", "indent with spaces"
        mark = re.search(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b", line)
        if mark:
            yield number, "leftover", mark[1], "do it now, or write an issue"
        for word in WORD.findall(line) if source.name != "tidy.py" else ():
            yield (number, "word", word.lower(), f"'{word}': use the term of the field, like "
                   f"'{WORDS[word.lower()]}'")


def check_messages(source):
    """An error that only repeats a value does not name its fault."""
    for found in BARE_VALUE.finditer(source.text):
        yield (source.line_at(found.start()), "bare-value", found[1],
               f"'{found[1]}': name the fault of the value")


def check_c(source):
    for function in functions(source):
        if function.lines > FUNCTION_LINES_MAX:
            yield (function.line, "function-lines", function.name, f"'{function.name}' has "
                   f"{function.lines} lines; split it, at most {FUNCTION_LINES_MAX}")
        if function.parameters > PARAMETERS_MAX:
            yield (function.line, "parameters", function.name, f"'{function.name}' has "
                   f"{function.parameters} parameters; pass a struct, at most {PARAMETERS_MAX}")
    for match in re.finditer(r"\btypedef\s+(?:struct|enum|union)\b", source.code):
        yield (source.line_at(match.start()), "typedef", "", "say struct or enum where it is used")
    for match in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n]*\\\n)*[^\n]*)", source.code,
                             re.M):
        if re.search(r"\b(return|goto)\b", match[2]):
            yield (source.line_at(match.start()), "macro", match[1],
                   f"'{match[1]}' hides a return or goto; write it where it happens")
    yield from check_calls(source)
    yield from check_cuts(source)
    if source.name.endswith(".h"):
        yield from check_header(source)
    elif source.room:
        yield from check_own_header(source)


def calls(source, names):
    """Calls of these functions; a member of the same name (x->read, x.open) is none."""
    pattern = r"(?<![\w.>])(" + "|".join(names.split()) + r")\s*\("
    for match in re.finditer(pattern, source.code):
        yield source.line_at(match.start()), match[1]


def check_calls(source):
    for line, name in calls(source, UNSAFE):
        yield line, "unsafe", name, f"'{name}' has no bound or no error; use snprintf or strtol"
    if not source.is_library():
        return
    for rule, names, home, advice in CALLS:
        if not home or not re.fullmatch(home, source.path):
            for line, name in calls(source, names):
                yield line, rule, name, f"'{name}': {advice}"
    found = re.search(r"^static pthread_mutex_t \w+ = PTHREAD_MUTEX_INIT", source.code, re.M)
    if found and "pthread_atfork(" not in source.code:
        yield (source.line_at(found.start()), "fork", "", "a fork may happen while another thread "
               "has a static lock: release it in the child by pthread_atfork")
    for match in re.finditer(r"\b(stderr|stdout)\b", source.code):
        yield (source.line_at(match.start()), "output", match[1], f"'{match[1]}': {CALLS[1][3]}")


def statements(source, name):
    """Calls whose result is not used: line, arguments, and the comments on the statement."""
    for match in re.finditer(r"(?<=[;{}\n])([ \t]*)" + name + r"\(", source.code):
        before = source.code[:match.start()].rstrip()
        if before and before[-1] not in ";{})" and not before.endswith("else"):
            continue  # a part of an expression
        depth, at = 0, match.end() - 1
        while at < len(source.code):
            depth += {"(": 1, ")": -1}.get(source.code[at], 0)
            if depth == 0:
                break
            at += 1
        line, last = source.line_at(match.end()), source.line_at(at)
        yield line, source.text[match.end():at], "\n".join(source.lines[line - 2:last])


def check_cuts(source):
    """A text that programs read, and that is cut without an error, names another thing."""
    if not source.is_library() or source.room.partition("/")[0] not in CUT_FLOORS:
        return
    for line, arguments, text in statements(source, "snprintf"):
        target, _, rest = arguments.partition(",")
        plain = re.sub(r"\[.*?\]", "", target).split("+")[0].strip()
        name = re.split(r"->|\.", plain)[-1]
        if re.search(r"%s", rest) and name not in CUT_TEXTS and not re.search(
                r"/\*.*\b(cut|fits?)\b", text, re.S):
            yield (line, "cut", name, f"the text of '{name}' may be cut: compare the result with "
                   "its size, or say in a comment why it fits, or that it may be cut")


def check_header(source):
    folder = source.path.partition("/")[2]
    guard = re.sub(r"\W", "_", folder).upper()
    found = re.search(r"^#ifndef (\w+)\n#define (\w+)$", source.text, re.M)
    if not found or found[1] != guard or found[2] != guard:
        yield (source.line_at(found.start()) if found else 1, "guard", "",
               f"guard the header with {guard}")
    if source.room:
        comment = re.match(r"/\*.*?\*/", source.text, re.S)
        missing = [word for word in HEADER_WORDS
                   if not comment or not re.search(rf"\b{word}:", comment[0])]
        if missing:
            yield 1, "contract", "", f"say {', '.join(missing)} in the first comment"


def check_own_header(source):
    includes = re.findall(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)', source.text, re.M)
    own = f"{source.room}/{source.stem}.h"
    if own in includes and includes[0] != own:
        yield 1, "own-header", "", f'include "{own}" first: it proves to stand alone'


def names_file(test, source):
    """Whether a test says that it is about the file: by its name, in its text, or by including
    the header that the file implements (its first include, if it is of the same room)."""
    stem = source.stem.removesuffix("_avx2")
    header = re.search(r'^#include "(\S+)"', source.text, re.M)
    return (test.stem.rpartition("_")[0] == stem or re.search(rf"\b{stem}\.c\b", test.text)
            or header is not None and header[1].startswith(f"{source.room}/")
            and f'"{header[1]}"' in test.text)


def is_parser(source):
    return (source.room in PARSER_ROOMS or source.room and source.name in PARSER_FILES
            or READERS.search(source.code) is not None)


def check_corpora(root, sources):
    """Each fuzz target begins with inputs that reach the code under test."""
    for source in sources:
        if source.room and source.stem.endswith("_fuzz"):
            corpus = root / "src/test/corpus" / source.stem.removesuffix("_fuzz")
            if not corpus.is_dir() or not any(corpus.iterdir()):
                yield Finding(source.path, 1, "corpus", "", "put inputs into "
                              f"{corpus.relative_to(root)}, good ones and bad ones")


def check_names(sources):
    """A name of a file says which file it is, wherever it stands. A public header is named by its
    subject, as <stoker/subject.h>: a room's own header may have that name, too."""
    names = defaultdict(list)
    for source in sources:
        if source.path.startswith(("src/", "scripts/", "python/")) and \
                source.name not in ("__init__.py", "conftest.py"):
            names[source.name].append(source)
    for name, same in names.items():
        for source in same[1:]:
            yield Finding(source.path, 1, "unique", name, f"{same[0].path} has that name already")


def check_tags(sources):
    """A tag says which struct, union or enum it is. One that only its .c file can see, and that has
    no prefix of the library, may have the name of another such one."""
    tags = defaultdict(list)
    for source in sources:
        if source.path.startswith(("src/", "include/")):
            for match in re.finditer(r"\b(?:struct|union|enum)\s+(\w+)\s*\{", source.code):
                tags[match[1]].append((source, source.line_at(match.start())))
    for tag, places in tags.items():
        prefixed = tag.startswith(("stk_", "stoker_"))
        # Those that can meet another; a header first, so that it is what the others repeat.
        shared = [place for place in places if prefixed or not place[0].is_test]
        shared.sort(key=lambda place: not place[0].name.endswith(".h"))
        if prefixed or shared and shared[0][0].name.endswith(".h"):
            for source, line in shared[1:]:
                yield Finding(source.path, line, "tag-unique", tag,
                              f"{shared[0][0].path} defines '{tag}' already")


def check_rooms(sources):
    """Rules between files of a room."""
    by_room = defaultdict(list)
    for source in sources:
        if source.room and source.room != "test":
            by_room[source.room].append(source)
    for room, files in by_room.items():
        products = [file for file in files if file.name.endswith(".c") and not file.is_test]
        if len(products) > SOURCES_MAX:
            yield Finding(f"src/{room}", 1, "room", "", f"{len(products)} sources, at most "
                          f"{SOURCES_MAX}; it is two rooms, or one idea too many")
        for source in products:
            for kind in ["test"] + (["fuzz"] if is_parser(source) else []):
                # A fuzz target may stand higher up, where more of the path runs.
                beside = [file for file in (files if kind == "test" else sources)
                          if file.stem.endswith("_" + kind)]
                if not any(names_file(file, source) for file in beside):
                    yield Finding(source.path, 1, kind, "", f"add {source.stem}_{kind}.c, or "
                                  f"name {source.name} in the _{kind}.c that covers it")


def find_sources(root):
    for path in sorted(root.iterdir()):
        if path.is_file() and path.read_bytes()[:2] == b"#!":
            yield Source(root, path)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            parts = path.relative_to(root).parts[1:]
            if not path.is_file() or any(SKIPPED.fullmatch(part) for part in parts):
                continue
            if path.suffix in (".c", ".h", ".py", ".pyi") or path.read_bytes()[:2] == b"#!":
                yield Source(root, path)


def excuse(root, findings):
    """The findings that no exception names, and the exceptions that name no finding."""
    path = root / EXCEPTIONS
    rows, remaining = [], list(findings)
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        rule, target, reason = (line.split(maxsplit=2) + ["", ""])[:3]
        excused = [finding for finding in remaining if finding.rule == rule
                   and target in (finding.path, f"{finding.path}:{finding.name}")]
        remaining = [finding for finding in remaining if finding not in excused]
        if not excused:
            rows.append(Finding(EXCEPTIONS, number, "stale", "", f"'{rule} {target}' excuses "
                                "nothing; take the line out"))
        elif not reason:
            rows.append(Finding(EXCEPTIONS, number, "reason", "", "say why it may stay"))
    return remaining + rows


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                        else pathlib.Path(__file__).parent.parent).resolve()
    sources, findings = list(find_sources(root)), []
    for source in sources:
        for line, rule, name, advice in check_text(source):
            findings.append(Finding(source.path, line, rule, name, advice))
        for line, rule, name, advice in check_messages(source) if not source.is_c else ():
            findings.append(Finding(source.path, line, rule, name, advice))
        for line, rule, name, advice in check_c(source) if source.is_c else ():
            findings.append(Finding(source.path, line, rule, name, advice))
    findings += [*check_names(sources), *check_tags(sources), *check_rooms(sources),
                 *check_corpora(root, sources)]
    findings = sorted(excuse(root, findings))
    for finding in findings:
        print(f"{finding.path}:{finding.line}: {finding.rule}: {finding.advice}")
    print(f"tidy: {len(sources)} files, {len(findings)} findings")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
