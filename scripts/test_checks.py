#!/usr/bin/env python3
"""Goal: each rule of tidy.py, check_layers.py and check_exports.py catches what it is for; and the
scripts that list sources and tests find them, in rooms of one level and of two.
Method: a small clean tree passes; each row then changes one file of it and names the one finding
that must come of it. Run as a program."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_circles
import sources

SCRIPTS = pathlib.Path(__file__).resolve().parent

CONTRACT = "Owner: caller. Threads: one. Memory: none. Bound: none."
LAYERS = """# the rooms of this tree
base:
io:
io/posix (threads): base
io/sim (test):
format/tar (pure): base
loader: format/tar
programs/cli:
"""
GUARD = "/* {0}. {1} */\n#ifndef {2}_H\n#define {2}_H\n{3}#endif\n"
CLEAN = {
    "scripts/layers.txt": LAYERS,
    "scripts/floors.txt": "# tests of floors\nformat: tar\nbase: tar\nio: tar\n"
                          "loader: tar\nprograms: tar\n",
    "scripts/tidy-exceptions.txt": "# what may stay\n"
                                   "test src/programs/cli/main.c a Python test runs it\n",
    "scripts/tool.py": "print('a tool')\n",
    "check": "#!/bin/sh\nexit 0\n",
    "include/stoker/stoker.h": "#ifndef STOKER_STOKER_H\n#define STOKER_STOKER_H\n"
                               "#include \"stoker/error.h\"\n"
                               "#define STOKER_API\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
                               "/* STOKER_API int stoker_old(int a); */\n"
                               "STOKER_API int stoker_one(int a,\n    int b);\n"
                               "#ifdef __cplusplus\n}\n#endif\n#endif\n",
    "include/stoker/error.h": "#ifndef STOKER_ERROR_H\n#define STOKER_ERROR_H\n#endif\n",
    "src/base/mem.h": GUARD.format("mem", CONTRACT, "BASE_MEM", "struct stk_mem {\n    int a;\n};\n"
                                   "enum kind {\n    KIND_ONE\n};\n"),
    "src/base/mem.c": "#include \"base/mem.h\"\n#include <stdlib.h>\n"
                      "void *take(void)\n{\n    return malloc(1);\n}\n",
    "src/base/mem_test.c": "#include \"base/mem.h\"\n#include \"test/t.h\"\n"
                           "int main(void)\n{\n    printf(\"good\");\n    return 0;\n}\n",
    "src/io/io.h": GUARD.format("io", CONTRACT, "IO_IO", ""),
    "src/io/posix/posix.h": GUARD.format("posix", CONTRACT, "IO_POSIX_POSIX", ""),
    "src/io/posix/posix.c": "#include \"io/posix/posix.h\"\n#include \"base/mem.h\"\n"
                            "struct seam {\n    int a;\n};\n"
                            "int a(void)\n{\n    return open(\"x\", 0);\n}\n",
    "src/io/posix/posix_test.c": "#include \"io/posix/posix.h\"\n",
    "src/io/sim/sim.h": GUARD.format("sim", CONTRACT, "IO_SIM_SIM", ""),
    "src/format/tar/tar.h": GUARD.format("tar", CONTRACT, "FORMAT_TAR_TAR",
                                         "#include <stoker/stoker.h>\n"),
    "src/format/tar/tar.c": "#include \"format/tar/tar.h\"\n#include \"base/mem.h\"\n"
                            "#include <stdio.h>\n"
                            "struct seam {\n    int (*read)(void);\n};\n"
                            "/* free(x) and printf() in a comment are only words */\n"
                            "static const char *text = \"goto malloc(1);\";\n"
                            "int stk_tar(struct seam *seam)\n{\n"
                            "    return seam->read() + snprintf(NULL, 0, \"%s\", text);\n}\n",
    "src/format/tar/tar_test.c": "#include \"format/tar/tar.h\"\n#include \"io/sim/sim.h\"\n"
                                 "int main(void)\n{\n    return 0;\n}\n",
    "src/format/tar/tar_fuzz.c": "#include \"format/tar/tar.h\"\n#include \"test/t.h\"\n",
    "src/loader/loader.h": GUARD.format("loader", CONTRACT, "LOADER_LOADER",
                                        "#include \"format/tar/tar.h\"\n"),
    "src/test/corpus/tar/one": "a tar\n",
    "src/test/t.h": "/* the harness. Owner: test. Threads: one. Memory: none. Bound: none. */\n"
                    "#ifndef TEST_T_H\n#define TEST_T_H\n#include \"base/mem.h\"\n#endif\n",
    "src/programs/cli/main.c": "#include <stoker/stoker.h>\n#include <stdio.h>\n"
                               "int main(void)\n{\n    puts(\"hello\");\n    return 0;\n}\n",
    "python/tests/test_tar.py": "def test_one():\n    pass\n",
    "docs/page.md": "`format/tar/tar.h` and `src/base`, `stk_tar()`, `struct stk_mem`\n",
    "docs/ARCHITECTURE.md": "| `base` | memory | - |\n| `io` | files | `posix` `sim` |\n"
                            "| `format` | bytes | `tar` |\n| `loader` | batches | - |\n"
                            "| `programs` | the command | `cli` |\n",
    "python/module.c": "#include <stoker/stoker.h>\n#include \"own.h\"\n",
    "python/own.h": "#ifndef OWN_H\n#define OWN_H\n#endif\n",
}

LONG_FUNCTION = "int long_one(void)\n{\n" + "    step();\n" * 68 + "}\n"  # 71 lines

# Name, script, file, text added to it (or the whole file), the finding.
ADDED = [
    ("file of 801 lines", "tidy", "src/format/tar/tar_fuzz.c", "int a;\n" * 799,
     "src/format/tar/tar_fuzz.c:801: file-lines:"),
    ("Python file of 801 lines", "tidy", "scripts/tool.py", "a = 1\n" * 800,
     "scripts/tool.py:801: file-lines:"),
    ("function of 71 lines", "tidy", "src/format/tar/tar.c", LONG_FUNCTION,
     "src/format/tar/tar.c:13: function-lines: 'long_one' has 71"),
    ("function of 71 lines in a test", "tidy", "src/format/tar/tar_test.c", LONG_FUNCTION,
     "src/format/tar/tar_test.c:7: function-lines: 'long_one' has 71"),
    ("seven parameters", "tidy", "src/format/tar/tar.c",
     "static void many(int a, int (*b)(int, int), int c,\n    int d, int e, int f, int g)\n{\n}\n",
     "src/format/tar/tar.c:13: parameters: 'many' has 7"),
    ("101 columns", "tidy", "src/format/tar/tar.c", "/*" + "x" * 97 + "*/\n",
     "src/format/tar/tar.c:13: columns: 101"),
    ("101 columns of Python", "tidy", "scripts/tool.py", "#" * 101 + "\n",
     "scripts/tool.py:2: columns: 101"),
    ("a document that names no file", "check_docs", "docs/page.md", "`format/tar/none.c`\n",
     "docs/page.md:2: name: no file 'format/tar/none.c'"),
    ("a document that names no function", "check_docs", "docs/page.md", "`stk_" "none()`\n",
     "docs/page.md:2: symbol: the code has no 'stk_" "none'"),
    ("a document that names no module", "check_docs", "docs/page.md", "`none.py`\n",
     "docs/page.md:2: name: no file 'none.py'"),
    ("a table of floors without a room", "check_docs", "docs/ARCHITECTURE.md",
     "| `io` | files | `posix` |\n",
     "docs/ARCHITECTURE.md:6: floor: add the room 'sim' of 'io'"),
    ("a table of floors with a room too many", "check_docs", "docs/ARCHITECTURE.md",
     "| `loader` | batches | `none` |\n",
     "docs/ARCHITECTURE.md:6: floor: 'loader' has no room 'none'"),
    ("a document with a dead link", "check_docs", "docs/page.md", "[a](none.md)\n",
     "docs/page.md:2: link: 'none.md'"),
    ("101 columns of shell", "tidy", "check", "#" * 101 + "\n", "check:3: columns: 101"),
    ("tab", "tidy", "src/format/tar/tar.c", "\tint a;\n", "src/format/tar/tar.c:13: tab:"),
    ("leftover", "tidy", "src/format/tar/tar.c", "/* TO" "DO: later */\n",
     "src/format/tar/tar.c:13: leftover:"),
    ("leftover in Python", "tidy", "scripts/tool.py", "# FIX" "ME\n",
     "scripts/tool.py:2: leftover:"),
    ("word in a comment", "tidy", "src/format/tar/tar.c", "/* the length that it was to" "ld */\n",
     "src/format/tar/tar.c:13: word:"),
    ("word in a name of Python", "tidy", "scripts/tool.py", "bytes_to" "ld = 1\n",
     "scripts/tool.py:2: word:"),
    ("error that repeats a value", "tidy", "scripts/tool.py",
     "raise ArgumentError(f\"shape {shape!r}\", \"Array\", \"pass 1\")\n",
     "scripts/tool.py:2: bare-value: 'shape {shape!r}'"),
    ("malloc", "tidy", "src/format/tar/tar.c", "void *a(void)\n{\n    return malloc (8);\n}\n",
     "src/format/tar/tar.c:15: memory: 'malloc'"),
    ("free in a macro", "tidy", "src/format/tar/tar.c", "#define DROP(x) free(x)\n",
     "src/format/tar/tar.c:13: memory: 'free'"),
    ("printf", "tidy", "src/format/tar/tar.c", "void a(void)\n{\n    printf(\"x\");\n}\n",
     "src/format/tar/tar.c:15: output: 'printf'"),
    ("stderr", "tidy", "src/format/tar/tar.c", "void *a(void)\n{\n    return stderr;\n}\n",
     "src/format/tar/tar.c:15: output: 'stderr'"),
    ("exit", "tidy", "src/base/mem.c", "void a(void)\n{\n    exit(1);\n}\n",
     "src/base/mem.c:9: output: 'exit'"),
    ("abort", "tidy", "src/base/mem.c", "void a(void)\n{\n    abort();\n}\n",
     "src/base/mem.c:9: output: 'abort'"),
    ("open", "tidy", "src/format/tar/tar.c", "int a(void)\n{\n    return open(\"x\", 0);\n}\n",
     "src/format/tar/tar.c:15: outside: 'open'"),
    ("pread", "tidy", "src/format/tar/tar.c", "int a(void)\n{\n    return pread(0, 0, 0, 0);\n}\n",
     "src/format/tar/tar.c:15: outside: 'pread'"),
    ("clock", "tidy", "src/format/tar/tar.c",
     "int a(void)\n{\n    return clock_gettime(0, 0);\n}\n",
     "src/format/tar/tar.c:15: outside: 'clock_gettime'"),
    ("rand", "tidy", "src/format/tar/tar.c", "int a(void)\n{\n    return rand();\n}\n",
     "src/format/tar/tar.c:15: outside: 'rand'"),
    ("a number by the locale", "tidy", "src/format/tar/tar.c",
     "double a(void)\n{\n    return strtod(\"1\", 0);\n}\n",
     "src/format/tar/tar.c:15: number: 'strtod'"),
    ("a path that may be cut", "tidy", "src/format/tar/tar.c",
     "void a(char b[8], const char *c)\n{\n    snprintf(b, 8, \"%s\", c);\n}\n",
     "src/format/tar/tar.c:15: cut: the text of 'b'"),
    ("strcpy in a test", "tidy", "src/format/tar/tar_test.c",
     "void a(char *b)\n{\n    strcpy(b, b);\n}\n", "src/format/tar/tar_test.c:9: unsafe: 'strcpy'"),
    ("atoi in the command", "tidy", "src/programs/cli/main.c",
     "int a(void)\n{\n    return atoi(\"1\");\n}\n",
     "src/programs/cli/main.c:10: unsafe: 'atoi'"),
    ("sprintf in Python's module", "tidy", "python/module.c",
     "void a(char *b)\n{\n    sprintf(b, b);\n}\n", "python/module.c:5: unsafe: 'sprintf'"),
    ("a static lock", "tidy", "src/base/mem.c",
     "static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n",
     "src/base/mem.c:7: fork: "),
    ("typedef", "tidy", "src/format/tar/tar.c", "typedef struct seam seam;\n",
     "src/format/tar/tar.c:13: typedef:"),
    ("macro with return", "tidy", "src/format/tar/tar.c",
     "#define TRY(x) \\\n    if (x) \\\n        return 1\n",
     "src/format/tar/tar.c:13: macro: 'TRY'"),
    ("macro with goto", "tidy", "src/format/tar/tar.c",
     "#define FAIL(x) do { goto done; } while (0)\n",
     "src/format/tar/tar.c:13: macro: 'FAIL'"),
    ("exception without use", "tidy", "scripts/tidy-exceptions.txt",
     "tab src/format/tar/tar.c old\n",
     "scripts/tidy-exceptions.txt:3: stale:"),
    ("climbing include", "check_layers", "src/format/tar/tar.c", "#include \"loader/loader.h\"\n",
     "src/format/tar/tar.c:13: layer:"),
    ("include of a folder above", "check_layers", "src/format/tar/tar.c",
     "#include \"../base/mem.h\"\n",
     "src/format/tar/tar.c:13: path:"),
    ("include without a room", "check_layers", "src/format/tar/tar.c", "#include \"tar.h\"\n",
     "src/format/tar/tar.c:13: path:"),
    ("harness in the product", "check_layers", "src/format/tar/tar.c", "#include \"test/t.h\"\n",
     "src/format/tar/tar.c:13: layer:"),
    ("test that climbs", "check_layers", "src/format/tar/tar_test.c",
     "#include \"loader/loader.h\"\n", "src/format/tar/tar_test.c:7: layer:"),
    ("room in the command", "check_layers", "src/programs/cli/main.c", "#include \"base/mem.h\"\n",
     "src/programs/cli/main.c:8: layer:"),
    ("room in Python's module", "check_layers", "python/module.c", "#include \"base/mem.h\"\n",
     "python/module.c:3: layer:"),
    ("open in the simulated one", "tidy", "src/io/sim/sim.h",
     "static inline int a(void)\n{\n    return open(\"x\", 0);\n}\n",
     "src/io/sim/sim.h:7: outside: 'open'"),
    ("tag of the library used twice", "tidy", "src/format/tar/tar.c",
     "struct stk_mem {\n    int a;\n};\n",
     "src/format/tar/tar.c:13: tag-unique: src/base/mem.h defines 'stk_mem'"),
    ("tag of the library used twice, in a test", "tidy", "src/format/tar/tar_test.c",
     "struct stk_mem {\n    int a;\n};\n", "src/format/tar/tar_test.c:7: tag-unique:"),
    ("tag of a header used twice", "tidy", "src/format/tar/tar.c", "enum kind {\n    ONE\n};\n",
     "src/format/tar/tar.c:13: tag-unique: src/base/mem.h defines 'kind'"),
    ("simulation in the product", "check_layers", "src/format/tar/tar.c",
     "#include \"io/sim/sim.h\"\n", "src/format/tar/tar.c:13: layer:"),
    ("threads in a pure room", "check_layers", "src/format/tar/tar.c", "#include <pthread.h>\n",
     "src/format/tar/tar.c:13: pure:"),
    ("sockets in a pure room", "check_layers", "src/format/tar/tar.c", "#include <sys/socket.h>\n",
     "src/format/tar/tar.c:13: pure:"),
    ("clock in a pure room", "check_layers", "src/format/tar/tar.c",
     "long a(void)\n{\n    return stk_clock_ns();\n}\n",
     "src/format/tar/tar.c:15: pure: 'format/tar' is pure: it may not call 'stk_clock_ns'"),
    ("room without files", "check_layers", "scripts/layers.txt", "tools/copy:\n",
     "scripts/layers.txt:9: room: 'tools/copy' has no files"),
    ("line that is no row", "check_layers", "scripts/layers.txt", "tools/copy\n",
     "scripts/layers.txt:9: row:"),
    ("test of a floor that is not there", "check_layers", "scripts/floors.txt", "loader: gone\n",
     "scripts/floors.txt:7: floor: no python/tests/test_gone.py"),
    ("tests of no floor", "check_layers", "scripts/floors.txt", "network: tar\n",
     "scripts/floors.txt:7: floor: no floor 'network'"),
]
HEADER = "/* {}. {} */\n#ifndef {}\n#define {}\n#endif\n"
WRITTEN = [
    ("guard of another name", "tidy", "src/format/tar/wds.h",
     HEADER.format("wds", CONTRACT, "WDS_H", "WDS_H"), "src/format/tar/wds.h:2: guard:"),
    ("no guard", "tidy", "src/format/tar/wds.h", f"/* wds. {CONTRACT} */\n",
     "src/format/tar/wds.h:1: guard:"),
    ("header without its contract", "tidy", "src/format/tar/wds.h",
     HEADER.format("wds", "Owner: caller. Memory: none.", "FORMAT_TAR_WDS_H", "FORMAT_TAR_WDS_H"),
     "src/format/tar/wds.h:1: contract: say Threads, Bound"),
    ("own header last", "tidy", "src/format/tar/tar.c",
     "#include \"base/mem.h\"\n#include \"format/tar/tar.h\"\n",
     "src/format/tar/tar.c:1: own-header:"),
    ("name used twice", "tidy", "src/format/tar/mem.h",
     HEADER.format("mem", CONTRACT, "FORMAT_TAR_MEM_H", "FORMAT_TAR_MEM_H"),
     "src/format/tar/mem.h:1: unique:"),
    ("source without a test", "tidy", "src/base/sum.c", "int a;\n", "src/base/sum.c:1: test:"),
    ("exception without a reason", "tidy", "scripts/tidy-exceptions.txt",
     "test src/programs/cli/main.c\n", "scripts/tidy-exceptions.txt:1: reason:"),
    ("unlisted room", "check_layers", "src/new/new.c", "int a;\n", "src/new/new.c:1: room:"),
    ("room in a room", "check_layers", "src/format/tar/pax/pax.c", "int a;\n",
     "src/format/tar/pax/pax.c:1: room: put it into"),
    ("list that climbs", "check_layers", "scripts/layers.txt",
     LAYERS.replace("base:", "base: later"), "scripts/layers.txt:2: order:"),
    ("room named before its row", "check_layers", "scripts/layers.txt",
     LAYERS.replace("loader: format/tar\n", "").replace("io:\n", "loader: format/tar\nio:\n"),
     "scripts/layers.txt:3: order:"),
    ("floor in two places", "check_layers", "scripts/layers.txt",
     LAYERS.replace("io:\n", "").replace("loader:", "io:\nloader:"),
     "scripts/layers.txt:6: floor:"),
    ("permission that nothing needs", "check_layers", "scripts/layers.txt",
     LAYERS.replace("loader:", "loader: base"), "scripts/layers.txt:7: unused:"),
    ("pure room over one that is not", "check_layers", "scripts/layers.txt",
     LAYERS.replace(" (pure)", "").replace("loader:", "loader (pure):"),
     "scripts/layers.txt:7: pure: 'loader' is pure, 'format/tar' is not"),
    ("product over a room of tests", "check_layers", "scripts/layers.txt",
     LAYERS.replace("(pure)", "(test)"), "scripts/layers.txt:7: layer: 'format/tar' is for tests"),
    ("mark of another name", "check_layers", "scripts/layers.txt",
     LAYERS.replace("pure", "clean"), "scripts/layers.txt:6: row: no such mark: clean"),
    ("floor without tests", "check_layers", "scripts/floors.txt",
     "format: tar\nbase: tar\nio: tar\nprograms: tar\n",
     "scripts/floors.txt:1: floor: say which Python tests a change in 'loader' can break"),
    ("Python test of no floor", "check_layers", "python/tests/test_new.py", "\n",
     "scripts/floors.txt:1: floor: say which floor"),
]


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def run(script, *arguments):
    done = subprocess.run([sys.executable, SCRIPTS / f"{script}.py", *arguments],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()[:-1], done.stdout + done.stderr


class Checks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stoker-checks-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path, text in CLEAN.items():
            write(self.root, path, text)

    def assert_finding(self, script, want):
        status, findings, output = run(script, self.root)
        self.assertEqual(status, 1, output)
        self.assertEqual(len(findings), 1, output)
        self.assertTrue(findings[0].startswith(want), output)

    def test_clean_tree(self):
        for script in ("tidy", "check_layers"):
            status, findings, output = run(script, self.root)
            self.assertEqual((status, findings), (0, []), output)

    def test_each_rule(self):
        rows = [(name, script, path, CLEAN[path] + text, want)
                for name, script, path, text, want in ADDED] + WRITTEN
        for name, script, path, text, want in rows:
            with self.subTest(name):
                write(self.root, path, text)
                self.assert_finding(script, want)
                (self.root / path).unlink()
                if path in CLEAN:
                    write(self.root, path, CLEAN[path])

    def test_parser_without_a_fuzz_target(self):
        (self.root / "src/format/tar/tar_fuzz.c").unlink()
        self.assert_finding("tidy", "src/format/tar/tar.c:1: fuzz:")

    def test_parser_by_its_calls(self):
        write(self.root, "src/base/mem.c", CLEAN["src/base/mem.c"] +
              "void *look(void)\n{\n    return json_loadb(0, 0, 0, 0);\n}\n")
        self.assert_finding("tidy", "src/base/mem.c:1: fuzz:")

    def test_fuzz_target_without_inputs(self):
        (self.root / "src/test/corpus/tar/one").unlink()
        self.assert_finding("tidy", "src/format/tar/tar_fuzz.c:1: corpus:")

    def test_too_many_sources(self):
        for number in range(12):
            write(self.root, f"src/base/part{number}.c", "int a;\n")
        write(self.root, "src/base/parts_test.c",
              "".join(f"/* part{number}.c */\n" for number in range(12)))
        self.assert_finding("tidy", "src/base:1: room: 13 sources")

    def test_sources(self):
        for path in ("programs/decode_helper/serve.c", "programs/tls_server/tls_server.c",
                     "tls/tls.c", "io/sim/sim.c", "base/crc_avx2.c", "test/help.c"):
            write(self.root, f"src/{path}", "int a;\n")
        rows = [("lib", "base/mem format/tar/tar io/posix/posix"), ("avx2", "base/crc_avx2"),
                ("sim", "io/sim/sim"), ("fuzz", "format/tar/tar_fuzz"),
                ("test", "base/mem_test format/tar/tar_test io/posix/posix_test"),
                ("threaded", "io/posix/posix_test"), ("cli", "programs/cli/main"),
                ("helper", "programs/decode_helper/serve"),
                ("fault", "programs/tls_server/tls_server tls/tls")]
        for kind, want in rows:
            with self.subTest(kind):
                found = [path.relative_to(self.root / "src").with_suffix("").as_posix()
                         for path in sources.find(self.root, kind)]
                self.assertEqual(" ".join(found), want)

    def copy_scripts(self):
        """The scripts that check the tree that contains them."""
        for path in SCRIPTS.iterdir():
            if path.is_file() and not (self.root / "scripts" / path.name).exists():
                shutil.copy(path, self.root / "scripts")

    def of_copy(self, script, *arguments):
        done = subprocess.run([sys.executable, self.root / "scripts" / script, *arguments],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.split("\n")[:-1]

    def test_affected(self):
        self.copy_scripts()
        rows = [("own base", ["mem_test"]), ("own format", ["tar_test", "tar_fuzz"]),
                ("c base", ["mem_test", "tar_test", "posix_test", "tar_fuzz"]),
                ("own io", ["posix_test"]), ("own io/sim", [""]), ("own python", [""]),
                ("python format/tar", ["python/tests/test_tar.py"]), ("python python", [""])]
        for arguments, want in rows:
            with self.subTest(arguments):
                self.assertEqual(self.of_copy("affected.py", *arguments.split()), (0, want))
        self.assertEqual(self.of_copy("affected.py", "own", "form"), (2, []))

    def test_lists_of_tests(self):
        self.copy_scripts()
        write(self.root, "check", "#!/bin/sh\ncase $1 in tar_fuzz | gone_fuzz) ;; esac\n"
              "decoders='tar:4'\ndecoders='gone:6'\n")
        status, lines = self.of_copy("list_tests")
        self.assertEqual(status, 0)
        want = ["asan tar_fuzz", "asan tar_test", "c tar_test", "fuzz tar_fuzz",
                "fuzz-hours tar_fuzz 4", "fuzz-rate tar_fuzz", "libfuzzer tar_fuzz",
                "python test_tar", "python-test test_tar::test_one", "tsan posix_test"]
        self.assertEqual([line for line in want if line not in lines], [])
        self.assertEqual([line for line in lines if "gone" in line or "tsan tar" in line], [])
        write(self.root, "before", "c old_test\nc-function old_test::test_a\npython test_same\n")
        write(self.root, "after", "c new_test\nc-function new_test::test_a\npython test_same\n")
        write(self.root, "names", "# old and new\nold_test new_test\n")
        paths = [self.root / name for name in ("before", "after", "names")]
        self.assertEqual(self.of_copy("list_tests", "--compare", *paths)[0], 0)
        write(self.root, "names", "python old_test new_test\n")
        status, lines = self.of_copy("list_tests", "--compare", *paths)
        self.assertEqual((status, lines[0]), (1, "gone: c old_test"))

    def test_slowest(self):
        self.copy_scripts()
        write(self.root, "log.json", '{"name": "stoker:tar_test", "duration": 2.5}\n'
              '{"name": "stoker:mem_test", "duration": 0.5}\n')
        write(self.root, "log.txt", "1.25s call     python/tests/test_tar.py::test_one\n"
              "0.75s setup    python/tests/test_tar.py::test_one\n")
        status, lines = self.of_copy("slowest", "--count=3", f"asan={self.root}/log.json",
                                     f"python={self.root}/log.txt", f"tsan={self.root}/none")
        self.assertEqual((status, lines), (0, [
            "", "the slowest of 4 tests:", "     2.5 s   tar_test (asan)",
            "     1.2 s   test_tar.py::test_one (python)",
            "     0.8 s   test_tar.py::test_one (python, setup)"]))

    def exports(self, text):
        source, library = self.root / "library.c", self.root / "library.so"
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return run("check_exports", library, self.root / "include/stoker/stoker.h")

    def test_exports(self):
        status, findings, output = self.exports("int stoker_one(int a) { return a; }")
        self.assertEqual((status, findings), (0, []), output)

    def test_exports_too_much_or_too_little(self):
        rows = [("int stoker_one(int a) { return a; } int stk_two;", "'stk_two' is exported; hide"),
                ("int stoker_one(int a) { return a; } int stoker_two;", "'stoker_two' is exported"),
                ("static int stoker_one;", "'stoker_one' is declared and not exported")]
        for text, want in rows:
            with self.subTest(want):
                status, findings, output = self.exports(text)
                self.assertEqual((status, len(findings)), (1, 1), output)
                self.assertIn(want, findings[0])

    def test_circles(self):
        edges = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "e"}, "e": {"f"}, "f": {"d"}}
        self.assertEqual(sorted(check_circles.circles_of(edges)), [["b", "c"], ["d", "e", "f"]])
        self.assertEqual(check_circles.circles_of({"a": {"b"}, "b": set()}), [])
        write(self.root, "src/io/loop.h",
              "/* a.c and b.c are one loop, and\n * call each other. */\n")
        self.assertEqual(check_circles.named_machines(self.root)["io"], [{"a.c", "b.c"}])

    def test_headers_stand_alone(self):
        folder = self.root / "include"
        self.assertEqual(run("check_headers", folder)[:2], (0, []))
        for text, want in (("size_t stoker_a(void);\n", "as C:"),
                           ("int stoker_a(int *class);\n", "as C++:")):
            write(self.root, "include/stoker/error.h", text)
            status, findings, output = run("check_headers", folder)
            self.assertEqual(status, 1, output)
            self.assertTrue(any("stoker/error.h:0: alone:" in line and want in line
                                for line in findings), output)


if __name__ == "__main__":
    unittest.main()
