// The conversation that every client's program in Node has, in lines of JSON as
// tests/support/clients/spoken.py says. A program has `answer`.

import { createInterface } from 'node:readline'

// Answer each request until there are no more: a member whose input ends is gone without a word.
export async function converse (answer) {
  for await (const line of createInterface({ input: process.stdin })) {
    try {
      console.log(JSON.stringify({ is: await answer(JSON.parse(line)) }))
    } catch (error) {
      const said = [error, ...(error.errors ?? [])].map(one => String(one.stack ?? one))
      console.log(JSON.stringify({ error: said.join('\n') }))
    }
  }
  process.exit(0)
}
