/** A daemon behind whatever ends TLS for it, or on a port of this host. */
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { SvcError } from "../../errors.ts";
import type { NodeAddress } from "./address.ts";
import type { FarStream } from "./far-stream.ts";

export type NetworkAddress = Extract<NodeAddress, { kind: "https" | "http" }>;

/** What OpenSSL says of a server that refuses the protocol; one that knows none says nothing. */
const noHttp2 = "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL";

/** @param authorities certificates, in PEM, that are trusted instead of the system's */
export async function openNetwork(
  address: NetworkAddress,
  authorities: string | undefined,
): Promise<FarStream> {
  const { kind, host, port, authority } = address;
  let problem: unknown;
  let socket: Socket;
  if (kind === "http") {
    socket = connectTcp({ host, port });
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

function sentence(authority: string, error: NodeJS.ErrnoException | undefined): string {
  switch (error?.code) {
    case undefined:
      return `${authority} answers in a way that no svc daemon does${error === undefined ? "" : `: ${error.message}`}`;
    case "ECONNREFUSED":
      return `nobody listens on ${authority}`;
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return `the name of ${authority} cannot be resolved`;
    case "DEPTH_ZERO_SELF_SIGNED_CERT":
    case "SELF_SIGNED_CERT_IN_CHAIN":
    case "UNABLE_TO_VERIFY_LEAF_SIGNATURE":
    case "UNABLE_TO_GET_ISSUER_CERT":
    case "UNABLE_TO_GET_ISSUER_CERT_LOCALLY":
      return `the certificate of ${authority} is not from an authority that is trusted here: name its own with --ca-file (SVC_CA_FILE)`;
    case noHttp2:
      return `${authority} does not speak HTTP/2, which svc needs there: switch it on in what ends TLS`;
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return `the certificate of ${authority} is for another name`;
    default:
      return `${authority} cannot be reached: ${error?.message ?? ""}`;
  }
}
