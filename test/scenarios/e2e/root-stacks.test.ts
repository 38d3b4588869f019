/** Stacks that only root may install. */
import { testClassicStacks, testStacks } from "../../support/stack-life.ts";
import { rootStacks } from "../../support/root-stacks.ts";

testStacks(rootStacks);
testClassicStacks(rootStacks);
