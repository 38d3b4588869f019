/** A client of a remote daemon. Loaded when needed. */
import { readFile } from "node:fs/promises";
import { SvcError } from "../../errors.ts";
import type { CliHost } from "../host.ts";
import { fileProblem } from "../input/local-file.ts";
import type { Client } from "../client/client.ts";
import { SocketClient } from "../client/socket-client.ts";
import { parseAddress } from "./address.ts";
import type { NamedNode } from "./choose-node.ts";
import { RemoteDaemon } from "./remote-daemon.ts";
import { openNetwork } from "./network-stream.ts";
import { readToken } from "./node-token.ts";
import { openSsh } from "./ssh-stream.ts";

/** Connection problems appear at the first call. @throws if the node's address or token is not usable */
export async function connectNode(host: Pick<CliHost, "env" | "sockets">, node: NamedNode): Promise<Client> {
  const { name } = node;
  const address = parseAddress(node.address);
  switch (address.kind) {
    case "unix":
      return new SocketClient({ socketPath: address.socketPath, headers: {} });
    case "ssh": {
      const command = (host.env["SVC_SSH"] ?? "").split(" ").filter((word) => word !== "");
      const open = () => openSsh(address, { command, options: node.ssh_options ?? [] });
      return new SocketClient(
        new RemoteDaemon({ name, authority: "localhost", scheme: "http", headers: {}, open }),
      );
    }
    case "https":
    case "http": {
      const authorities = node.ca_file === undefined ? undefined : await readAuthorities(node.ca_file);
      const headers = { authorization: `Bearer ${await readToken(node)}` };
      const options = { authorities, systemSocket: host.sockets.system };
      const open = () => openNetwork(address, options);
      const { authority, kind: scheme } = address;
      return new SocketClient(new RemoteDaemon({ name, authority, scheme, headers, open }));
    }
  }
}

async function readAuthorities(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    const why = fileProblem(error) ?? String(error);
    throw new SvcError("not_possible", `the CA file ${path} cannot be read: ${why}`, { cause: error });
  }
}
