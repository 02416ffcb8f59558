"""What only happens on a terminal: colours, width, the progress bar, following; and readers that leave."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import unicodedata

import pytest

ESCAPE = re.compile(r"\x1b\[[0-9;]*[mK]")


def on_terminal(argv, cwd, env, columns=80, before_reading=None) -> tuple[str, int]:
    """Runs argv on a terminal; returns what it showed and how it ended. One that is not read stops its writer."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    if before_reading:
        before_reading(process)
    out = b""
    while select.select([master], [], [], 60)[0]:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        out += piece
        if not piece:
            break
    os.close(master)
    return out.decode().replace("\r\n", "\n"), process.wait(60)


def width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 132, 200])
@pytest.mark.parametrize("line", ["ls small", "ls small -l", "ls odd", "stats small", "verify lossy"])
def test_tables_fit_the_terminal(command, runs, env, columns, line):
    out, status = on_terminal([command, *line.split()], runs, env, columns)
    rows = ESCAPE.sub("", out).split("\n\n")[0].splitlines()
    assert status == 0
    assert len(rows) > 1
    assert max(width(row) for row in rows) <= columns


def test_columns_variable_wins(command, runs, env):
    out, _ = on_terminal([command, "ls", "small"], runs, env | {"COLUMNS": "50"}, 120)
    assert max(width(row) for row in ESCAPE.sub("", out).split("\n\n")[0].splitlines()) <= 50


def test_long_names_are_cut_in_the_middle(command, runs, env):
    out, _ = on_terminal([command, "ls", "odd"], runs, env)
    assert re.search(r"n+…n+ ", ESCAPE.sub("", out))
    ascii_only, _ = on_terminal([command, "ls", "odd"], runs, env | {"LANG": "C"})
    assert re.search(r"n+\.\.n+ ", ESCAPE.sub("", ascii_only))


def test_no_name_reaches_the_terminal_raw(command, runs, env):
    out, _ = on_terminal([command, "ls", "odd", "--color=never"], runs, env)
    assert "\x1b" not in out
    assert "\\x1b[31mred" in out


HOSTILE_LINES = [
    "ls hostile",
    "ls hostile -l",
    "ls hostile --json",
    "ls hostile_too --name *name*",
    "show hostile *nested*",
    "show hostile_too *name*",
    "show hostile *nested* --json",
    "stats hostile",
    "stats hostile_too",
    "stats hostile --json",
    "verify hostile",
    "verify hostile --all",
    "verify hostile --json",
    "compare hostile hostile_too",
    "compare hostile hostile_too --all",
    "compare hostile hostile_too --csv",
    "compare hostile hostile_too --json",
    "compare hostile hostile_too -o EVIL",
    "repeat hostile hostile_too",
    "nan hostile_too",
    "export hostile OUT",
    "summary EVIL.csv",
    "convert EVIL.print OUT",
    "ls EVIL",
    "ls hostile --name EVIL",
    "ls hostile --step EVIL",
    "ls hostile --kind EVIL",
    "ls hostile --EVIL",
    "EVIL",
    "help EVIL",
    "show hostile EVIL",
    "compare hostile hostile_too --tol EVIL",
    "compare hostile hostile_too --precision EVIL",
    "compare hostile EVIL",
    "repeat hostile EVIL",
    "export hostile OUT --format EVIL",
    "export hostile EVIL/OUT",
    "completion EVIL",
]
EVIL = "\x1b[31m\x1b]0;t\x07\r\nFORGED \u200b\u202e\u2066\x9b"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]|^FORGED", re.MULTILINE)


@pytest.mark.parametrize("line", HOSTILE_LINES)
def test_nothing_recorded_or_asked_for_is_shown_raw(command, runs, env, tmp_path, line):
    """On a terminal and in a pipe. CSV in a pipe is for programs: it has texts as they are."""
    for name, content in (("EVIL.csv", f"Op Name,{EVIL}\n"), ("EVIL.print", EVIL)):
        (runs / name).write_text(content, encoding="utf-8")
    words = [word.replace("OUT", str(tmp_path / "out")) for word in line.split()]
    argv = [command, *(word if word.startswith("EVIL.") else word.replace("EVIL", EVIL) for word in words)]
    shown, status = on_terminal(argv, runs, env | {"NO_COLOR": "1"}, 200)
    assert status < 2 or "EVIL" in line, shown
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    piped = subprocess.run(argv, cwd=runs, env=env, capture_output=True, timeout=60, check=False)
    texts = [shown, piped.stderr.decode()] + ([] if "--csv" in words else [piped.stdout.decode()])
    for text in texts:
        assert not RAW.search(text), text
    if "--json" in words:
        said = "".join(str(json.loads(row)) for row in piped.stdout.decode().splitlines())
        assert "\\u200b\\u202e\\u2066\\x9b" in said


def test_hidden_columns_are_said(command, runs, env):
    narrow, _ = on_terminal([command, "ls", "small"], runs, env, 60)
    wide, _ = on_terminal([command, "ls", "small"], runs, env, 220)
    assert "no room" in narrow
    assert "no room" not in wide


def test_colours_only_where_wanted(command, runs, env):
    argv = [command, "ls", "small", "--kind", "grad"]
    red = "\x1b[31m1 nan 1 inf\x1b[0m"
    assert red in on_terminal(argv, runs, env, 200)[0]
    assert "\x1b" not in on_terminal(argv, runs, env | {"NO_COLOR": "1"}, 200)[0]
    assert red in on_terminal(argv, runs, env | {"NO_COLOR": ""}, 200)[0]
    assert "\x1b" not in on_terminal(argv, runs, env | {"TERM": "dumb"}, 200)[0]
    assert "\x1b" not in on_terminal([*argv, "--color=never"], runs, env, 200)[0]
    assert red in on_terminal([*argv, "--color", "always"], runs, env | {"NO_COLOR": "1"}, 200)[0]
    piped = subprocess.run(argv, cwd=runs, env=env, capture_output=True, check=True, text=True)
    assert "\x1b" not in piped.stdout


def test_nothing_moves_when_it_is_quick(command, runs, env, tmp_path):
    argv = [command, "export", "small", tmp_path / "out", "--name", "loss", "--step", "0", "--rank", "0"]
    out, status = on_terminal(argv, runs, env)
    assert status == 0
    assert "\r" not in out
    assert "\x1b" not in out


def test_progress_comes_after_a_second(command, runs, env, tmp_path):
    argv = [command, "export", "small", tmp_path / "out", "--json"]
    out, status = on_terminal(argv, runs, env, before_reading=lambda process: time.sleep(1.3))
    assert status == 0
    assert re.search(r"\rexporting +\d+% ▕█* *▏ \d+ / 60", out)
    assert out.rstrip().endswith("not tensors")
    assert "\r\x1b[K" in out
    for line in re.sub(r"\r[^\r\n]*\x1b\[K", "", out).splitlines()[:-1]:
        json.loads(line)


def test_an_interrupted_export_leaves_whole_files(command, runs, env, tmp_path):
    def interrupt(process):
        while not list(tmp_path.glob("out/*")):
            time.sleep(0.01)
        time.sleep(0.2)  # now it waits for the terminal
        process.send_signal(signal.SIGINT)

    argv = [command, "export", "small", tmp_path / "out", "--json"]
    _, status = on_terminal(argv, runs, env, before_reading=interrupt)
    files = [f.name for f in (tmp_path / "out").iterdir()]
    assert status == -signal.SIGINT
    assert 0 < len(files) < 54
    assert all(name.endswith(".npy") for name in files)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("words", [["index", "small"], ["export", "small", "out"], ["verify", "small"]])
def test_a_signal_ends_it_while_a_file_never_answers(command, runs, env, tmp_path, words, number):
    """Reads hang, as on a file server that is gone: the flag that is looked at between two records is not enough."""
    shutil.copytree(runs / "small", tmp_path / "small")
    stuck = {**env, "LD_PRELOAD": str(command.parent / "fault_shim.so"), "SHIM_HANG": "1"}
    process = subprocess.Popen([command, *words], cwd=tmp_path, env=stuck, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)  # it hangs
    process.send_signal(number)
    assert process.wait(20) == -number


def test_a_reader_may_leave(command, runs, env):
    for line in ["ls small", "ls small --json", "show small '*' --all", "stats small", "help ls", "completion bash"]:
        done = subprocess.run(
            ["bash", "-c", f"{command} {line} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"],
            cwd=runs,
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert (done.stdout, done.stderr) == ("0\n", ""), line


def test_work_goes_on_when_the_reader_leaves(command, runs, env, tmp_path):
    subprocess.run(
        ["bash", "-c", f"{command} export small {tmp_path}/out | true"], cwd=runs, env=env, check=True, timeout=60
    )
    assert len(list((tmp_path / "out").iterdir())) == 54


def test_a_full_disk_is_said(command, runs, env):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [command, "ls", "small"], cwd=runs, env=env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2
    assert "No space left" in done.stderr


def test_follow_prints_what_comes_and_ends(command, recorder, env, tmp_path):
    run = tmp_path / "run"
    source = subprocess.Popen(
        [recorder, "growing", run], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert source.stdout.readline() == "saved\n"
    follower = subprocess.Popen(
        [command, "ls", "--follow", "--json", run], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert json.loads(follower.stdout.readline())["step"] == 0
        for step in range(1, 4):
            source.stdin.write("\n")
            source.stdin.flush()
            assert source.stdout.readline() == "saved\n"
            assert json.loads(follower.stdout.readline())["step"] == step
        source.stdin.close()
        assert source.wait(60) == 0
        assert follower.wait(60) == 0
        last = [json.loads(line) for line in follower.stdout.read().splitlines()]
        assert [r["step"] for r in last] == [4] * len(last)  # nothing twice
        assert follower.stderr.read() == ""
    finally:
        for process in (follower, source):
            if process.poll() is None:
                process.kill()
                process.wait()


def test_wait_gives_up_after_the_timeout(command, recorder, env, tmp_path):
    run = tmp_path / "run"
    source = subprocess.Popen(
        [recorder, "growing", run], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert source.stdout.readline() == "saved\n"
        argv = [command, "wait", run, "--timeout", "0.2"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert "still being written" in done.stderr
        waiting = subprocess.Popen([command, "wait", run], env=env)
        time.sleep(0.3)
        assert waiting.poll() is None
        source.stdin.close()
        assert source.wait(60) == 0
        assert waiting.wait(60) == 0
    finally:
        if source.poll() is None:
            source.kill()
            source.wait()


@pytest.mark.parametrize(
    "line",
    [
        "ls small",
        "ls lossy",
        "ls odd",
        "show small * --all",
        "stats small",
        "verify small --all",
        "verify lossy --rules",
        "export small {out} --force",
        "index small",
        "recover small",
        "wait small",
        "convert vm.print {out} --force",
        "completion zsh",
        "version",
        "help",
        "show x.npy",
    ],
)
def test_json_is_json(command, runs, env, tmp_path, line):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    argv = [word.format(out=tmp_path / "out") for word in line.split()]
    done = subprocess.run([command, *argv, "--json"], cwd=runs, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines
    for text in lines:
        assert isinstance(json.loads(text, parse_constant=refuse), dict)
