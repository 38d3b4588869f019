/** Every socket that waits for others: from the kernel itself, and from its tables where it, or koffi, does not answer. */
import { createSocketDiagnosis } from "./socket-diagnosis.ts";
import { createSocketTables } from "./socket-tables.ts";
import type { SocketTable, WaitingSocket } from "./waiting-socket.ts";

const allTables: readonly SocketTable[] = [
  { protocol: "tcp", version: 4 },
  { protocol: "tcp", version: 6 },
  { protocol: "udp", version: 4 },
  { protocol: "udp", version: 6 },
];

/** @returns reads them all */
export function createSocketReader(createDiagnosis = createSocketDiagnosis): () => WaitingSocket[] {
  const fromTables = createSocketTables();
  const diagnose = unlessItThrows(createDiagnosis);
  return () => allTables.flatMap((table) => unlessItThrows(() => diagnose?.(table)) ?? fromTables(table));
}

/** `undefined` where there is no native module, the unit allows no such socket, or the kernel was built without. */
function unlessItThrows<T>(get: () => T): T | undefined {
  try {
    return get();
  } catch {
    return undefined;
  }
}
