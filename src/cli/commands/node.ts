/** `svc node …`: names for remote daemons. */
import { resolve } from "node:path";
import type { Command } from "commander";
import { SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { parseAddress } from "../nodes/address.ts";
import { collect } from "../input/option-values.ts";
import { findNode } from "../nodes/choose-node.ts";
import { localNode, nodeName, readNodes, type Node, writeNodes } from "../nodes/node-file.ts";
import type { RunCommand } from "../run-command.ts";

export function addNodeCommand(parent: Command, run: RunCommand): void {
  const node = parent.command("node").description("manage named remote daemons, for svc -N NAME");
  node
    .command("add")
    .description("add a named node: a remote daemon")
    .argument("<name>", "name of the node: lower-case letters, digits, dots, dashes and underscores")
    .argument("<address>", "ssh://[user@]host[:port], https://host[:port] or unix:///path")
    .option("--token-file <file>", "with https: a file with the token, readable only by you")
    .option(
      "--credential-helper <program>",
      "with https: a program that prints the token, like Docker's credential helpers",
    )
    .option("--ca-file <file>", "with https: certificates to trust instead of the system's")
    .option("--ssh-option <name=value>", "with ssh: an option for ssh -o (repeatable)", collect)
    .addHelpText("after", addExamples)
    .action(run(add));
  node
    .command("list", { isDefault: true })
    .alias("ls")
    .description("list the nodes; the current one is marked (also: svc node)")
    .action(run(list));
  node
    .command("use")
    .description("set the default node")
    .argument("<node>", "name of the node; local: this machine")
    .action(run(use));
  node
    .command("remove")
    .alias("rm")
    .description("remove a node from the list; nothing changes on it")
    .argument("<node>", "name of the node")
    .action(run(remove));
}

const addExamples = `
Nodes are stored in ~/.config/svc/nodes.json. The node is not contacted yet: try it with svc -N NAME status.

Examples:
  svc node add attic ssh://ada@attic.example.org
  svc node add bench ssh://bench:2222 --ssh-option IdentityFile=~/.ssh/bench
  svc node add shop https://svc.example.org --token-file ~/.config/svc/shop.token
`;

interface AddOptions {
  readonly tokenFile?: string;
  readonly credentialHelper?: string;
  readonly caFile?: string;
  readonly sshOption?: readonly string[];
}

async function add(
  context: CommandContext,
  name: string,
  address: string,
  options: AddOptions,
): Promise<void> {
  if (!nodeName.test(name)) {
    throw new UsageError(
      `the name ${JSON.stringify(name)} must be lower-case letters, digits, dots, dashes and underscores`,
    );
  }
  if (name === localNode) throw new UsageError(`${localNode} is this machine: choose another name`);
  const node = nodeOf(address, options);
  const { nodes, ...rest } = readNodes(context.host);
  if (Object.hasOwn(nodes, name)) {
    throw new SvcError(
      "already_exists",
      `node ${name} already exists; remove it first: svc node remove ${name}`,
    );
  }
  writeNodes(context.host, { ...rest, nodes: { ...nodes, [name]: node } });
  return context.printResult({ name, ...node }, `Added ${name}. Try it: svc -N ${name} status`);
}

/** @throws UsageError for options that do not apply to this kind of address */
function nodeOf(address: string, options: AddOptions): Node {
  const { tokenFile, credentialHelper, caFile, sshOption = [] } = options;
  const { kind } = parseAddress(address);
  const isWeb = kind === "https" || kind === "http";
  if (!isWeb && (tokenFile ?? credentialHelper ?? caFile) !== undefined) {
    throw new UsageError("--token-file, --credential-helper and --ca-file are for https addresses");
  }
  if (kind !== "ssh" && sshOption.length > 0) throw new UsageError("--ssh-option is for ssh addresses");
  const wrong = sshOption.find((option) => !/^[A-Za-z]+[= ][^\0-\x1f\x7f]+$/.test(option));
  if (wrong !== undefined) throw new UsageError(`--ssh-option ${JSON.stringify(wrong)} must be NAME=VALUE`);
  if (tokenFile !== undefined && credentialHelper !== undefined) {
    throw new UsageError("pass --token-file or --credential-helper, not both");
  }
  if (isWeb && tokenFile === undefined && credentialHelper === undefined) {
    throw new UsageError("an https address needs a token: pass --token-file or --credential-helper");
  }
  return {
    address,
    ...(tokenFile === undefined ? {} : { token_file: resolve(tokenFile) }),
    ...(credentialHelper === undefined ? {} : { credential_helper: credentialHelper }),
    ...(caFile === undefined ? {} : { ca_file: resolve(caFile) }),
    ...(sshOption.length === 0 ? {} : { ssh_options: sshOption }),
  };
}

async function list(context: CommandContext): Promise<void> {
  const { current = localNode, nodes } = readNodes(context.host);
  const rows = [
    { name: localNode, address: "this machine" },
    ...Object.entries(nodes).map(([name, { address }]) => ({ name, address })),
  ];
  if (context.json) {
    return context.printJson({
      current,
      nodes: Object.entries(nodes).map(([name, node]) => ({ name, ...node })),
    });
  }
  return context.printTable(
    [
      { title: "", value: ({ name }) => (name === current ? "*" : "") },
      { title: "NODE", value: ({ name }) => name, isKey: true },
      { title: "ADDRESS", value: ({ address }) => address, shrinkTo: 16 },
    ],
    rows,
  );
}

async function use(context: CommandContext, name: string): Promise<void> {
  findNode(context.host, name);
  const { nodes } = readNodes(context.host);
  writeNodes(context.host, { ...(name === localNode ? {} : { current: name }), nodes });
  const where = name === localNode ? "this machine" : name;
  return context.printResult({ current: name }, `The default node is now ${where}`);
}

async function remove(context: CommandContext, name: string): Promise<void> {
  if (findNode(context.host, name) === undefined) {
    throw new UsageError(`${localNode} is this machine and cannot be removed`);
  }
  const { current, nodes } = readNodes(context.host);
  const { [name]: _gone, ...others } = nodes;
  writeNodes(context.host, {
    ...(current === undefined || current === name ? {} : { current }),
    nodes: others,
  });
  if (current === name) context.note("The default node is this machine again.");
  return context.printResult({ name }, `Removed ${name}`);
}
