/** A connection to a daemon behind a TLS proxy, or on a port of this host. */
import { once } from "node:events";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { SvcError } from "../../errors.ts";
import { accepterOf, describeUser } from "../../sys/socket-owner.ts";
import type { NodeAddress } from "./address.ts";
import { confirmedListener, covers } from "./confirmed-listeners.ts";
import { connectTimeoutMs, type RemoteStream } from "./remote-stream.ts";

export type NetworkAddress = Extract<NodeAddress, { kind: "https" | "http" }>;

/** OpenSSL's error code if the server rejects ALPN for HTTP/2. Servers without ALPN report nothing. */
const noHttp2 = "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL";

export interface NetworkOptions {
  /** Certificates in PEM, trusted instead of the system's. */
  readonly authorities?: string | undefined;
  /** The socket of the system's daemon, which confirms its TCP address. */
  readonly systemSocket: string;
}

export async function openNetwork(address: NetworkAddress, options: NetworkOptions): Promise<RemoteStream> {
  const { authorities, systemSocket } = options;
  const { kind, host, port, authority } = address;
  let problem: unknown;
  let socket: Socket;
  if (kind === "http") {
    socket = await connectChecked(address, systemSocket);
  } else {
    const { connect: connectTls } = await import("node:tls");
    const secure = connectTls({
      host,
      port,
      ALPNProtocols: ["h2"],
      ...(isIP(host) === 0 ? { servername: host } : {}),
      ...(authorities === undefined ? {} : { ca: authorities }),
    });
    secure.once("secureConnect", () => {
      if (secure.alpnProtocol === "h2") return;
      secure.destroy(Object.assign(new Error("no h2"), { code: noHttp2 }));
    });
    socket = secure;
  }
  socket.on("error", (error) => (problem ??= error));
  return {
    duplex: socket,
    failure: (cause) => {
      const error = (problem ?? cause) as NodeJS.ErrnoException | undefined;
      return Promise.resolve(new SvcError("unavailable", sentence(authority, error), { cause: error }));
    },
    [Symbol.asyncDispose]: () => {
      socket.destroy();
      return Promise.resolve();
    },
  };
}

/**
 * Connects to a port of this host. Any user can take a free port, and the container engine publishes users' ports as root.
 * So nothing is sent unless the caller's own uid accepted the connection, or root did and the system's daemon confirms the address.
 * @throws SvcError `unavailable`; `not_possible` for a listener that is not confirmed
 */
async function connectChecked(address: NetworkAddress, systemSocket: string): Promise<Socket> {
  const { port, authority } = address;
  const socket = connectTcp({ host: await addressFor(address, systemSocket), port });
  const signal = AbortSignal.timeout(connectTimeoutMs);
  try {
    await once(socket, "connect", { signal });
  } catch (cause) {
    socket.destroy();
    throw new SvcError("unavailable", sentence(authority, cause as NodeJS.ErrnoException), { cause });
  }
  // An `error` event without a listener would end the process.
  socket.on("error", () => undefined);
  const closed = new AbortController();
  socket.once("close", () => closed.abort());
  const target = { host: socket.remoteAddress ?? "", port };
  const uid = await accepterOf(socket, AbortSignal.any([signal, closed.signal]));
  if (uid !== undefined && uid !== 0 && uid === process.getuid?.()) return socket;
  // Checked after root accepted the connection: earlier, another program may have had the port.
  const listener = uid === 0 ? await confirmedListener(systemSocket) : undefined;
  if (listener !== undefined && covers(listener, target)) return socket;
  socket.destroy();
  throw uid === undefined
    ? new SvcError(
        "unavailable",
        `${authority} is not safe to use: no process of this host accepted the connection`,
      )
    : new SvcError(
        "not_possible",
        `the token was not sent to ${authority}: ${await explainListener(uid, systemSocket)}; ` +
          `use the daemon's socket (-H unix://${systemSocket}) or ssh (-H ssh://HOST)`,
      );
}

/** `localhost` may resolve to an address where another program listens: the daemon's own address is used instead. */
async function addressFor({ host, port }: NetworkAddress, systemSocket: string): Promise<string> {
  if (host !== "localhost") return host;
  const listener = await confirmedListener(systemSocket);
  const served = ["127.0.0.1", "::1"].find(
    (each) => listener !== undefined && covers(listener, { host: each, port }),
  );
  return served ?? host;
}

async function explainListener(uid: number, systemSocket: string): Promise<string> {
  return uid === 0
    ? `a program of root listens there, and the daemon on ${systemSocket} does not confirm that address as its own`
    : `${await describeUser(uid)} listens there, not root or you`;
}

function sentence(authority: string, error: NodeJS.ErrnoException | undefined): string {
  switch (error?.code) {
    case undefined:
      return `${authority} does not respond like an svc daemon${error === undefined ? "" : `: ${error.message}`}`;
    case "ECONNREFUSED":
      return `nothing listens on ${authority}`;
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return `the name of ${authority} cannot be resolved`;
    case "DEPTH_ZERO_SELF_SIGNED_CERT":
    case "SELF_SIGNED_CERT_IN_CHAIN":
    case "UNABLE_TO_VERIFY_LEAF_SIGNATURE":
    case "UNABLE_TO_GET_ISSUER_CERT":
    case "UNABLE_TO_GET_ISSUER_CERT_LOCALLY":
      return `the certificate of ${authority} is not signed by a trusted CA: pass its CA with --ca-file (SVC_CA_FILE)`;
    case noHttp2:
      return `${authority} does not support HTTP/2, which svc requires: enable it in the TLS proxy`;
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return `the certificate of ${authority} is for another name`;
    default:
      return `${authority} cannot be reached: ${error?.message ?? ""}`;
  }
}
