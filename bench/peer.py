"""What the comparisons share: a virtual environment for the other side, and programs that print one JSON document."""
import json, os, subprocess, sys


def python_with(venv, *packages):
    """The interpreter of a virtual environment, which is made with the packages from PyPI if it is not there."""
    python = os.path.join(venv, "bin", "python")
    if not os.path.exists(python):
        print(f"making {venv} with {', '.join(packages)} from PyPI", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


def last_json(command):
    """Runs a program and reads the last line that it prints."""
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{command[0]} ended with {ran.returncode}:\n{ran.stderr}")
    return json.loads(ran.stdout.strip().splitlines()[-1])
