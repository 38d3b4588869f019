/** A socket that waits for others, and the table of the kernel's that it stands in. */
export interface SocketTable {
  readonly protocol: "tcp" | "udp";
  /** Of the internet protocol. */
  readonly version: 4 | 6;
}

export interface WaitingSocket {
  readonly protocol: "tcp" | "udp";
  readonly address: string;
  readonly port: number;
  /** Who made it. */
  readonly uid: number;
  /** `socket:[inode]` in `/proc/<pid>/fd` of the processes that hold it. */
  readonly inode: number;
}
