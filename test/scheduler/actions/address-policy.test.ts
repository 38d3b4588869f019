import test from "ava";
import { AddressPolicy } from "../../../src/scheduler/actions/address-policy.ts";

const policy = new AddressPolicy();

for (const address of [
  "127.0.0.1",
  "127.255.255.254",
  "0.0.0.0",
  "0.1.2.3",
  "169.254.169.254",
  "169.254.0.1",
  "100.100.100.200",
  "192.0.0.192",
  "224.0.0.1",
  "255.255.255.255",
  "::",
  "::1",
  "0:0:0:0:0:0:0:1",
  "::ffff:127.0.0.1",
  "::ffff:7f00:1",
  "::FFFF:169.254.169.254",
  "::127.0.0.1",
  "::ffff:0:127.0.0.1",
  "64:ff9b::127.0.0.1",
  "64:ff9b::a9fe:a9fe",
  "2002:7f00:1::",
  "2002:a9fe:a9fe::1",
  "2001::1",
  "fe80::1",
  "fe80::1%lo",
  "febf::1",
  "fec0::1",
  "ff02::1",
  "fd00:ec2::254",
]) {
  test(`blocked: ${address}`, (t) => t.true(policy.isBlocked(address)));
}

for (const address of [
  "1.1.1.1",
  "10.0.0.1",
  "172.16.0.1",
  "192.168.1.1",
  "128.0.0.1",
  "169.253.255.255",
  "2606:4700::1111",
  "fd00::1",
  "::ffff:1.1.1.1",
  "64:ff9b::1.1.1.1",
  "2002:101:101::1",
]) {
  test(`allowed: ${address}`, (t) => t.false(policy.isBlocked(address)));
}
