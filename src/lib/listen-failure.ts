/** Why a TCP address cannot be listened on, in words, with what to do (`[api] listen`). */

/** Ports below it are for root, where the host does not say otherwise (ip_unprivileged_port_start of ip-sysctl.rst). */
const firstOpenPort = 1024;

interface TcpAddress {
  readonly host: string;
  /** 0 to 65,535. */
  readonly port: number;
}

/** As it stands in a URL: `[::1]:8420`. */
export function addressText({ host, port }: TcpAddress): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** @param code what the system says, such as `EACCES` @returns a sentence without its full stop */
export function listenFailure(address: TcpAddress, code: string): string {
  return `cannot listen on ${addressText(address)} (${code}): ${advice(address, code)}`;
}

/** Whether it is the configuration alone that can help: the same comes at each start. */
export function isForGood(code: string): boolean {
  return code === "EACCES";
}

function advice({ host, port }: TcpAddress, code: string): string {
  switch (code) {
    case "EACCES":
      return port < firstOpenPort
        ? `ports below ${firstOpenPort} are for root; set [api] listen to a higher one, such as 8420`
        : "this user may not; set [api] listen to another address";
    case "EADDRINUSE":
      return `another program does (svc listening ${port} says which); stop it, or set [api] listen to another port`;
    case "EADDRNOTAVAIL":
      return "this machine has no such address; set [api] listen to one that it has, such as 127.0.0.1";
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return `no address of ${host} is known; set [api] listen to an address, such as 127.0.0.1`;
    default:
      return "set [api] listen to another address";
  }
}
