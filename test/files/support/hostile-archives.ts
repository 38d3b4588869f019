/** Hostile archives, written by Python's own modules and with bytes changed afterwards. */
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";

/** Names that begin with `limit-` are rejected for their cost. */
export function hostileArchives(dir: string, canary: string): string[] {
  execFileSync("python3", ["-c", script, dir, canary]);
  return readdirSync(dir).sort();
}

const script = String.raw`
import gzip, io, os, struct, subprocess, sys, tarfile, zipfile
os.chdir(sys.argv[1])
canary = sys.argv[2]

def tar(name, *entries, format=tarfile.PAX_FORMAT):
    with tarfile.open(name, "w:gz" if name.endswith("gz") else "w", format=format) as archive:
        for path, kind, target, *rest in entries:
            entry = tarfile.TarInfo(path)
            entry.type = kind
            entry.linkname = target
            data = rest[0] if rest else b""
            entry.mode = rest[1] if len(rest) > 1 else 0o644
            entry.size = len(data)
            entry.devmajor, entry.devminor = 1, 5
            archive.addfile(entry, io.BytesIO(data))

F, D, L, H = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
good = ("good", F, "", b"good")
parent = os.path.dirname(canary)
tar("absolute.tar", good, (canary, F, "", b"bad"))
tar("climbs.tar", good, ("../canary", F, "", b"bad"))
tar("climbs-within.tar.gz", good, ("a/../../canary", F, "", b"bad"))
tar("sibling.tar", ("../dest-evil/x", F, "", b"bad"))
tar("through-link.tar", ("x", L, parent), ("x/canary", F, "", b"bad"))
tar("through-relative-link.tar", ("d", D, ""), ("d/x", L, "../.."), ("d/x/canary", F, "", b"bad"))
tar("through-two-links.tar", ("a", L, "b"), ("b", L, parent), ("a/canary", F, "", b"bad"))
tar("file-over-link.tar", ("x", L, canary), ("x", F, "", b"bad"))
tar("directory-over-link.tar", ("x", L, parent), ("x", D, ""), ("x/canary", F, "", b"bad"))
tar("hardlink-out.tar", good, ("x", H, canary))
tar("hardlink-climbs.tar", good, ("x", H, "../canary"))
# To where it is unpacked aside, in a new directory and in one that is there.
for depth in range(2, 6): tar("hardlink-climbs-%d.tar" % depth, good, ("x", H, "../" * depth + "canary"))
tar("hardlink-through-link.tar", ("d", L, parent), ("x", H, "d/canary"))
tar("hardlink-then-write.tar", ("l", L, canary), ("x", H, "l"), ("x", F, "", b"bad"))
tar("hardlink-to-directory.tar", ("d", D, ""), ("x", H, "d"))
tar("hardlink-to-nothing.tar", ("x", H, "nothing"))
tar("device.tar", good, ("zero", tarfile.CHRTYPE, ""))
tar("block-device.tar", good, ("disk", tarfile.BLKTYPE, ""))
tar("fifo.tar", good, ("pipe", tarfile.FIFOTYPE, ""))
tar("setuid.tar", ("x", F, "", b"bad", 0o4755))
tar("setgid.tar", ("x", F, "", b"bad", 0o2755))
tar("twice.tar", good, good)
tar("file-then-directory.tar", ("x", F, "", b"x"), ("x/y", F, "", b"y"))
tar("link-to-nothing.tar", ("x", L, ""))
tar("long-name.tar", ("n" * 300, F, "", b"x"))
tar("deep.tar", ("d/" * 1500 + "x", F, "", b"x"), format=tarfile.GNU_FORMAT)
tar("unknown-type.tar", ("x", b"Q", ""))
tar("nul-in-name.tar", ("name-that-has", F, "", b"x"))

def patch(source, target, old, new):
    data = open(source, "rb").read()
    assert old in data, source
    open(target, "wb").write(data.replace(old, new))
    if source != target: os.unlink(source)

def header(name, kind, size, content=b"", linkname=b""):
    block = bytearray(512)
    block[0:len(name)] = name
    block[100:108] = b"0000644\0"; block[108:116] = b"0000000\0"; block[116:124] = b"0000000\0"
    block[124:136] = b"%011o\0" % size; block[136:148] = b"00000000000\0"
    block[148:156] = b" " * 8; block[156:157] = kind; block[257:265] = b"ustar\00000"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + content + b"\0" * (-len(content) % 512)

def record(key, value):
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while len(b"%d" % length) + len(rest) != length: length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest

def pax(name, *records):
    content = b"".join(records)
    open(name, "wb").write(header(b"h", b"x", len(content), content) + header(b"x", b"0", 1, b"x") + b"\0" * 1024)

pax("nul-in-name.tar", record(b"path", b"good\0../canary"))
pax("pax-climbs.tar", record(b"path", b"../canary"))
pax("lying-size.tar", record(b"size", b"99999999"))
pax("no-size.tar", record(b"size", b"-1"))
pax("sparse.tar", record(b"GNU.sparse.major", b"1"), record(b"GNU.sparse.minor", b"0"), record(b"GNU.sparse.name", b"x"), record(b"GNU.sparse.realsize", b"9000000000"))
pax("old-sparse.tar", record(b"GNU.sparse.offset", b"0"), record(b"GNU.sparse.numbytes", b"9000000000"))
open("huge-header.tar", "wb").write(header(b"h", b"x", 8 << 30) + b"\0" * 4096)
open("wrong-sum.tar", "wb").write(bytes(bytearray(header(b"x", b"0", 0)[:148]) + b"000000\0 " + header(b"x", b"0", 0)[156:]) + b"\0" * 1024)
open("cut.tar", "wb").write(header(b"x", b"0", 5000, b"x" * 600))
open("cut.tar.gz", "wb").write(gzip.compress(header(b"x", b"0", 600, os.urandom(600)) + b"\0" * 1024)[:-30])
open("noise.tar.gz", "wb").write(os.urandom(5000))
open("noise.tar.zst", "wb").write(os.urandom(5000))
open("noise.zip", "wb").write(os.urandom(5000))
open("empty.tar", "wb").write(b"")
open("empty.zip", "wb").write(b"")

def zipped(name, *entries):
    with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data, mode in entries:
            entry = zipfile.ZipInfo(path)
            entry.create_system = 3
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)

file, link = 0o100644, 0o120777
zipped("absolute.zip", ("good", "good", file), (canary, "bad", file))
zipped("climbs.zip", ("good", "good", file), ("../canary", "bad", file))
zipped("sibling.zip", ("../dest-evil/x", "bad", file))
zipped("through-link.zip", ("x", parent, link), ("x/canary", "bad", file))
zipped("file-over-link.zip", ("x", canary, link), ("x", "bad", file))
zipped("twice.zip", ("x", "x", file), ("x", "y", file))
zipped("setuid.zip", ("x", "bad", 0o104755))
zipped("device.zip", ("x", "bad", 0o020666))
zipped("long-link.zip", ("x", "n" * 9000, link))
zipped("nul.zip", ("good#canary", "bad", file))
patch("nul.zip", "nul-in-name.zip", b"good#canary", b"good\0canary")
zipped("sum.zip", ("x", "some content", file))
data = bytearray(open("sum.zip", "rb").read()); os.unlink("sum.zip")
at = data.rindex(b"PK\x01\x02")
for name, offset, value in (("lying-sum.zip", 16, 12345), ("lying-size.zip", 24, 3), ("lying-larger.zip", 24, 3000000000), ("encrypted.zip", 8, 1), ("strange-method.zip", 10, 99)):
    changed = bytearray(data)
    if offset in (8, 10): struct.pack_into("<H", changed, at + offset, value)
    else: struct.pack_into("<I", changed, at + offset, value)
    open(name, "wb").write(changed)

with tarfile.open("limit-entries.tar.gz", "w:gz") as archive:
    for n in range(1001): archive.addfile(tarfile.TarInfo("f%d" % n))
# Not zeros, which become holes.
same = b"a" * (64 << 20)
open("limit-bomb.tar.gz", "wb").write(gzip.compress(header(b"x", b"0", len(same)) + same + b"\0" * 1024))
open("limit-bomb-behind-the-end.tar.gz", "wb").write(gzip.compress(header(b"x", b"0", 1, b"x") + b"\0" * 1024 + same))
subprocess.run(["zstd", "-q", "-o", "limit-bomb.tar.zst"], input=header(b"x", b"0", len(same)) + same + b"\0" * 1024, check=True)
zipped("limit-bomb.zip", *(("x%d" % n, b"a" * (8 << 20), file) for n in range(8)))
# Many entries of one and the same content (Fifield's bomb).
one = io.BytesIO()
with zipfile.ZipFile(one, "w", zipfile.ZIP_DEFLATED) as archive: archive.writestr("0", b"a" * (8 << 20))
data = one.getvalue(); at = data.index(b"PK\x01\x02"); end = data.index(b"PK\x05\x06")
central = b"".join(data[at:at + 46] + b"%d" % n + data[at + 47:end] for n in range(10))
open("limit-bomb-of-one.zip", "wb").write(data[:at] + central + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 10, 10, len(central), at, 0))
`;
