/** Lists every listening socket with sock_diag, or from `/proc/net` if sock_diag or koffi is not available. */
import { createSocketDiagnosis } from "./socket-diagnosis.ts";
import { createSocketTables } from "./socket-tables.ts";
import type { SocketTable, WaitingSocket } from "./waiting-socket.ts";

const allTables: readonly SocketTable[] = [
  { protocol: "tcp", version: 4 },
  { protocol: "tcp", version: 6 },
  { protocol: "udp", version: 4 },
  { protocol: "udp", version: 6 },
];

/** @returns a function that reads all of them */
export function createSocketReader(createDiagnosis = createSocketDiagnosis): () => WaitingSocket[] {
  const fromTables = createSocketTables();
  const diagnose = unlessItThrows(createDiagnosis);
  return () => allTables.flatMap((table) => unlessItThrows(() => diagnose?.(table)) ?? fromTables(table));
}

/** `undefined` if the native module is missing, the systemd unit forbids such sockets, or the kernel lacks sock_diag. */
function unlessItThrows<T>(get: () => T): T | undefined {
  try {
    return get();
  } catch {
    return undefined;
  }
}
