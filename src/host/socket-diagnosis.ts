/**
 * Sockets as the kernel itself lists them: sock_diag(7), which filters by state before it writes anything, and writes
 * numbers. Of thousands of sockets it takes a twentieth of what reading `/proc/net` does.
 */
import { endianness } from "node:os";
import { loadLibc, nativeError } from "../lib/libc.ts";
import { SocketAddresses } from "./socket-address.ts";
import type { SocketTable, WaitingSocket } from "./waiting-socket.ts";

/** Numbers of the kernel's `socket.h`, `netlink.h` and `sock_diag.h`, the same on all architectures. */
const netlinkFamily = 16;
const rawCloseOnExec = 3 | 0x80000;
const diagnosisProtocol = 4;
const dontWait = 0x40;
const requestDump = 0x1 | 0x300;
const byFamily = 20;
const isError = 2;
const isDone = 3;

const families = { 4: 2, 6: 10 } as const;
const addressBytes = { 4: 4, 6: 16 } as const;
const protocols = { tcp: 6, udp: 17 } as const;
/** Listening, and for UDP not connected, as bits of the request. */
const waitingStates = { tcp: 1 << 10, udp: 1 << 7 } as const;

const headerBytes = 16;
/** Of `inet_diag_req_v2` and of `inet_diag_msg`, with the header. */
const requestBytes = headerBytes + 56;
const messageBytes = headerBytes + 72;
/** More than the kernel puts into one answer. */
const answerBytes = 64 * 1024;
const isLittleEndian = endianness() === "LE";

type Socket = (family: number, type: number, protocol: number) => number;
type Close = (fd: number) => number;
type Transfer = (fd: number, bytes: Buffer, length: number, flags: number) => number;

/** Loads the native calls. @returns reads one table; throws where the kernel refuses */
export function createSocketDiagnosis(): (table: SocketTable) => WaitingSocket[] {
  const libc = loadLibc();
  const socket = libc.func("int socket(int, int, int)") as unknown as Socket;
  const send = libc.func("int64_t send(int, void *, size_t, int)") as unknown as Transfer;
  const receive = libc.func("int64_t recv(int, void *, size_t, int)") as unknown as Transfer;
  // Node warns of each descriptor that a thread closes and has not opened.
  const close = libc.func("int close(int)") as unknown as Close;
  const answer = Buffer.alloc(answerBytes);
  const addresses = new SocketAddresses();
  return (table) => {
    const fd = socket(netlinkFamily, rawCloseOnExec, diagnosisProtocol);
    if (fd < 0) throw nativeError("socket");
    try {
      if (send(fd, requestFor(table), requestBytes, 0) < 0) throw nativeError("send");
      const sockets: WaitingSocket[] = [];
      for (;;) {
        // The kernel has the next part when it is asked for it: there is nothing to wait for.
        const length = receive(fd, answer, answer.length, dontWait);
        if (length < 0) throw nativeError("recv");
        if (addMessages(answer.subarray(0, length), table, addresses, sockets)) return sockets;
      }
    } finally {
      close(fd);
    }
  };
}

function requestFor({ protocol, version }: SocketTable): Buffer {
  const request = Buffer.alloc(requestBytes);
  writeUInt32(request, requestBytes, 0);
  writeUInt16(request, byFamily, 4);
  writeUInt16(request, requestDump, 6);
  request[headerBytes] = families[version];
  request[headerBytes + 1] = protocols[protocol];
  writeUInt32(request, waitingStates[protocol], headerBytes + 4);
  return request;
}

/** @returns whether it was the last part. @throws Error with what the kernel says against the request */
function addMessages(
  part: Buffer,
  { protocol, version }: SocketTable,
  addresses: SocketAddresses,
  sockets: WaitingSocket[],
): boolean {
  for (let at = 0; at + headerBytes <= part.length;) {
    const length = readUInt32(part, at);
    const type = readUInt16(part, at + 4);
    if (type === isDone) return true;
    if (type === isError) throw new Error(`sock_diag: error ${readUInt32(part, at + headerBytes) | 0}`);
    if (length < messageBytes || at + length > part.length)
      throw new Error("sock_diag: a message is cut off");
    const body = at + headerBytes;
    sockets.push({
      protocol,
      address: addresses.text(part.toString("latin1", body + 8, body + 8 + addressBytes[version])),
      port: part.readUInt16BE(body + 4),
      uid: readUInt32(part, body + 64),
      inode: readUInt32(part, body + 68),
    });
    // Messages begin at multiples of four.
    at += (length + 3) & ~3;
  }
  return false;
}

/** Netlink has its numbers in the machine's own order. */
function readUInt32(bytes: Buffer, at: number): number {
  return isLittleEndian ? bytes.readUInt32LE(at) : bytes.readUInt32BE(at);
}

function readUInt16(bytes: Buffer, at: number): number {
  return isLittleEndian ? bytes.readUInt16LE(at) : bytes.readUInt16BE(at);
}

function writeUInt32(bytes: Buffer, value: number, at: number): void {
  if (isLittleEndian) bytes.writeUInt32LE(value, at);
  else bytes.writeUInt32BE(value, at);
}

function writeUInt16(bytes: Buffer, value: number, at: number): void {
  if (isLittleEndian) bytes.writeUInt16LE(value, at);
  else bytes.writeUInt16BE(value, at);
}
