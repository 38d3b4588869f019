/** Changes the owner of the entries of a tar stream (POSIX ustar and pax, as engines write them). */

export interface TarOwner {
  readonly uid: number;
  readonly gid: number;
}

const blockSize = 512;
/** Types of headers that extend the next header. */
const extended = new Set(["x", "g", "L", "K"]);
const fields = { mode: 100, uid: 108, gid: 116, size: 124, checksum: 148, type: 156, magic: 257 };

/**
 * Changes the owner of a directory's archive, and removes set-user-ID bits. Yields nothing if the directory already
 * belongs to the owner. The entry of the directory itself comes last.
 * @throws Error if the archive is not readable or is truncated
 */
export async function* tarOwnedBy(
  archive: AsyncIterable<Buffer>,
  owner: TarOwner,
): AsyncGenerator<Buffer, void> {
  let pending: Buffer = Buffer.alloc(0);
  let contentLeft = 0;
  /** The directory's header, with the headers that extend it. */
  const root: Buffer[] = [];
  let hasRoot = false;
  for await (const chunk of archive) {
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
    while (pending.length > 0 && (contentLeft > 0 || pending.length >= blockSize)) {
      const part = Buffer.from(pending.subarray(0, contentLeft || blockSize));
      pending = pending.subarray(part.length);
      if (contentLeft > 0) contentLeft -= part.length;
      else {
        if (part[0] === 0) {
          yield Buffer.concat([...root, Buffer.alloc(2 * blockSize)]);
          return;
        }
        const { type, uid, size } = readHeader(part);
        contentLeft = Math.ceil(size / blockSize) * blockSize;
        if (!extended.has(type)) {
          if (!hasRoot && uid === owner.uid) return;
          setOwner(part, owner);
          if (!hasRoot) {
            hasRoot = true;
            root.push(part);
            continue;
          }
        }
      }
      if (hasRoot) yield part;
      else root.push(part);
    }
  }
  throw new Error("an archive of the container engine ended early");
}

function readHeader(header: Buffer): { type: string; uid: number; size: number } {
  if (header.toString("latin1", fields.magic, fields.magic + 5) !== "ustar") {
    throw new Error("the container engine sent an archive that svc cannot read");
  }
  const type = header.toString("latin1", fields.type, fields.type + 1);
  return { type, uid: readNumber(header, fields.uid, 8), size: readNumber(header, fields.size, 12) };
}

/** Octal digits, or the binary number if digits do not suffice. */
function readNumber(header: Buffer, offset: number, length: number): number {
  if (header[offset] === 0x80) return header.readUIntBE(offset + length - 6, 6);
  return Number.parseInt(header.toString("latin1", offset, offset + length), 8) || 0;
}

function setOwner(header: Buffer, { uid, gid }: TarOwner): void {
  writeNumber(header, fields.mode, readNumber(header, fields.mode, 8) & 0o1777);
  writeNumber(header, fields.uid, uid);
  writeNumber(header, fields.gid, gid);
  // The checksum is computed with spaces in its field.
  header.fill(" ", fields.checksum, fields.checksum + 8);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, fields.checksum, "latin1");
}

function writeNumber(header: Buffer, offset: number, value: number): void {
  const digits = value.toString(8).padStart(7, "0");
  if (digits.length === 7) header.write(`${digits}\0`, offset, "latin1");
  else {
    header.fill(0, offset, offset + 8);
    header[offset] = 0x80;
    header.writeUIntBE(value, offset + 2, 6);
  }
}
