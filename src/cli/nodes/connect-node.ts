/** A client of a daemon elsewhere. Loaded when one is wanted. */
import { readFile } from "node:fs/promises";
import { SvcError } from "../../errors.ts";
import type { CliHost } from "../host.ts";
import { fileTrouble } from "../local-file.ts";
import type { Client } from "../transport/client.ts";
import { SocketClient } from "../transport/socket-client.ts";
import { parseAddress } from "./address.ts";
import type { NamedNode } from "./choose-node.ts";
import { FarDaemon } from "./far-daemon.ts";
import { openNetwork } from "./network-stream.ts";
import { readToken } from "./node-token.ts";
import { openSsh } from "./ssh-stream.ts";

/** Whether something answers there shows at the first call. @throws what is wrong with the node's address or token */
export async function connectNode(host: Pick<CliHost, "env">, node: NamedNode): Promise<Client> {
  const { name } = node;
  const address = parseAddress(node.address);
  switch (address.kind) {
    case "unix":
      return new SocketClient({ socketPath: address.socketPath, headers: {} });
    case "ssh": {
      const command = (host.env["SVC_SSH"] ?? "").split(" ").filter((word) => word !== "");
      const open = () => openSsh(address, { command, options: node.ssh_options ?? [] });
      return new SocketClient(
        new FarDaemon({ name, authority: "localhost", scheme: "http", headers: {}, open }),
      );
    }
    case "https":
    case "http": {
      const authorities = node.ca_file === undefined ? undefined : await readAuthorities(node.ca_file);
      const headers = { authorization: `Bearer ${await readToken(node)}` };
      const open = () => openNetwork(address, authorities);
      const { authority, kind: scheme } = address;
      return new SocketClient(new FarDaemon({ name, authority, scheme, headers, open }));
    }
  }
}

async function readAuthorities(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    const why = fileTrouble(error) ?? String(error);
    throw new SvcError("not_possible", `the CA file ${path} cannot be read: ${why}`, { cause: error });
  }
}
