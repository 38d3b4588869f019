/** Listening sockets and the processes that hold them. Only for the host thread. */
import type { ProcessScan } from "../processes/process-scan.ts";
import type { HostSocket, KnownApps } from "../processes/process-questions.ts";
import { SocketHolders } from "./socket-holders.ts";
import { createSocketReader } from "./socket-reader.ts";

export class SocketScan {
  readonly #processes: ProcessScan;
  readonly #read = createSocketReader();
  readonly #holders = new SocketHolders();

  constructor(processes: ProcessScan) {
    this.#processes = processes;
  }

  /** By port, protocol, address and process. */
  sockets(apps: KnownApps): HostSocket[] {
    const rows = this.#read();
    const holders = this.#holders.of(rows.map(({ inode }) => inode));
    const owners = this.#processes.owners(new Set(holders.values()), apps);
    return rows
      .map(({ protocol, address, port, uid, inode }): HostSocket => {
        const owner = owners.get(holders.get(inode) ?? -1);
        return { protocol, address, port, uid, ...(owner && { owner }) };
      })
      .toSorted(
        (a, b) =>
          a.port - b.port ||
          compare(a.protocol, b.protocol) ||
          compare(a.address, b.address) ||
          (a.owner?.pid ?? 0) - (b.owner?.pid ?? 0),
      );
  }
}

function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
