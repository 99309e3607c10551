# Leaves in /out what is hard to remove, fills it to its last inode, and waits.
import os, socket, sys, time
os.chdir("/out")
for name in (b"a\nb", b"\x1b[2J", b"\xff\xfe", b" ", b"-rf", b"n" * 255):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0))
os.symlink("/in", "in"); os.symlink("/", "root"); os.symlink("../../../../target", "up")
os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("sock")
os.makedirs("closed/within/deeper"); os.chmod("closed/within", 0); os.chmod("closed", 0)
top = os.open(".", os.O_RDONLY)
depth = int(sys.argv[1])
for _ in range(depth):
    os.mkdir("d"); os.chdir("d")
os.fchdir(top)
n = 0
try:
    while True:
        os.close(os.open("%d" % n, os.O_CREAT | os.O_WRONLY, 0o600)); n += 1
except OSError as e:
    print("full", e.errno, n)
os.fchmod(top, 0)
sys.stdout.flush()
if sys.argv[2] == "wait":
    time.sleep(60)
