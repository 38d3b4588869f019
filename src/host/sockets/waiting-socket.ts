/** A listening socket, and the kernel table that lists it. */
export interface SocketTable {
  readonly protocol: "tcp" | "udp";
  /** IP version. */
  readonly version: 4 | 6;
}

export interface WaitingSocket {
  readonly protocol: "tcp" | "udp";
  readonly address: string;
  readonly port: number;
  /** The uid that created it. */
  readonly uid: number;
  /** `socket:[inode]` in `/proc/<pid>/fd` of the processes that hold it. */
  readonly inode: number;
}
