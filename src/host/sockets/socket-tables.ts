/** Listening sockets from the tables in `/proc/net` (proc_net(5)). */
import { readFileSync } from "node:fs";
import { endianness } from "node:os";
import { socketsIn } from "../../sys/listening-sockets.mjs";
import { SocketAddresses, type SocketTable, type WaitingSocket } from "./waiting-socket.ts";

/** Listening sockets, and UDP sockets that are not connected. */
const waitingStates = { tcp: "0A", udp: "07" } as const;
const isLittleEndian = endianness() === "LE";

/** @returns a function that reads one table */
export function createSocketTables(): (table: SocketTable) => WaitingSocket[] {
  const addresses = new SocketAddresses();
  return ({ protocol, version }) => {
    let text: string;
    try {
      text = readFileSync(`/proc/net/${protocol}${version === 6 ? "6" : ""}`, "latin1");
    } catch {
      // The kernel has no IPv6.
      return [];
    }
    return Array.from(socketsIn(text, waitingStates[protocol]))
      .filter(({ remote }) => /^0+:0000$/.test(remote))
      .map(({ address, port, uid, inode }) => ({
        ...{ protocol, port, uid, inode },
        address: addresses.text(networkOrder(address)),
      }));
  };
}

/** @param hex 32-bit words of the kernel, each in the byte order of the machine */
function networkOrder(hex: string): string {
  const bytes = Buffer.from(hex, "hex");
  if (isLittleEndian) bytes.swap32();
  return bytes.toString("latin1");
}
