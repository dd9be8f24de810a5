// @platformatic/kafka, spoken to in lines of JSON as tests/support/clients/spoken.py says.

import { readFileSync } from 'node:fs'
import { Admin, ConfigResourceTypes, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { converse } from './spoken.mjs'

const bootstrap = process.argv[2]
const READ_UNCOMMITTED = 0
const READ_COMMITTED = 1
let member = null
let pending = [] // records that came and were not asked for
let passed = new Map() // partition -> the last record that was given out

function options (ask) {
  const found = { clientId: 'segbroker-test', bootstrapBrokers: [bootstrap], timeout: 30_000 }
  if (ask.authority) {
    found.tls = { ca: [readFileSync(ask.authority, 'utf-8')] }
    found.sasl = { mechanism: 'SCRAM-SHA-256', username: ask.user, password: ask.password }
  }
  return found
}

function messages (ask) {
  return ask.records.map(row => ({
    topic: ask.topic,
    key: row.key ?? undefined,
    value: row.value,
    partition: row.partition,
    headers: Object.fromEntries(row.headers),
    timestamp: row.timestamp === undefined ? undefined : BigInt(row.timestamp)
  }))
}

async function produce (ask) {
  const idempotent = ask.idempotent ?? false
  const producer = new Producer({ ...options(ask), serializers: stringSerializers, idempotent })
  await producer.send({ messages: messages(ask), acks: ask.acks ?? -1, compression: ask.codec ?? 'none' })
  await producer.close()
  return null
}

async function transact (ask) {
  const producer = new Producer({
    ...options(ask),
    serializers: stringSerializers,
    idempotent: true,
    transactionalId: ask.id,
    // Without these it calls itself producer 0, and is fenced as soon as its id has had another one.
    producerId: -1n,
    producerEpoch: -1
  })
  const transaction = await producer.beginTransaction()
  await transaction.send({ messages: messages(ask) })
  if (ask.offsets) {
    const { group, topic, offset } = ask.offsets
    // Nobody is in the group: what its member would know is said for it.
    const consumer = { groupId: group, generationId: -1, memberId: '', coordinatorId: 1 }
    await transaction.addConsumer(consumer)
    await transaction.addOffset({ topic, partition: 0, offset: BigInt(offset) - 1n, metadata: { consumer } })
  }
  await (ask.commit ? transaction.commit() : transaction.abort())
  await producer.close()
  return null
}

function record (message) {
  return {
    offset: Number(message.offset),
    partition: message.partition,
    key: message.key ?? null,
    value: message.value,
    headers: [...message.headers],
    timestamp: Number(message.timestamp)
  }
}

// The library reads in groups only: a group of its own, and places that are given.
async function read (ask) {
  const consumer = new Consumer({
    ...options(ask), groupId: `read-${process.pid}-${Date.now()}`, deserializers: stringDeserializers
  })
  const stream = await consumer.consume({
    topics: [ask.topic],
    mode: 'manual',
    offsets: [{ topic: ask.topic, partition: ask.partition, offset: BigInt(ask.offset) }],
    autocommit: false,
    isolationLevel: READ_UNCOMMITTED,
    maxWaitTime: 100
  })
  const rows = []
  for await (const message of stream) {
    if (message.partition === ask.partition) rows.push(record(message))
    if (rows.length === ask.count) break
  }
  await consumer.close(true)
  return rows
}

async function join (ask) {
  member = new Consumer({ ...options(ask), groupId: ask.group, deserializers: stringDeserializers })
  member.on('consumer:group:join', () => { pending = [] })
  const stream = await member.consume({
    topics: [ask.topic],
    mode: 'committed',
    fallbackMode: 'earliest',
    autocommit: false,
    groupInstanceId: ask.place ?? undefined,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
    maxWaitTime: 100,
    isolationLevel: ask.committed_only ? READ_COMMITTED : READ_UNCOMMITTED
  })
  stream.on('data', message => pending.push(message))
  return null
}

function owned () {
  return (member.assignments ?? []).flatMap(one => one.partitions)
}

async function poll () {
  if (pending.length === 0) await new Promise(resolve => setTimeout(resolve, 50))
  const came = pending
  pending = []
  for (const one of came) passed.set(one.partition, one)
  return came.map(one => one.value)
}

async function commit () {
  const offsets = [...passed.values()].map(one => (
    { topic: one.topic, partition: one.partition, offset: one.offset + 1n, leaderEpoch: -1 }))
  await member.commit({ offsets })
  return null
}

async function offsetsAt (ask, admin, timestamp) {
  const partitions = [{ partitionIndex: ask.partition, timestamp: BigInt(timestamp) }]
  const [found] = await admin.listOffsets({ topics: [{ name: ask.topic, partitions }] })
  return Number(found.partitions[0].offset)
}

async function administer (ask, admin) {
  const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: ask.topic }
  switch (ask.verb) {
    case 'create': {
      const configs = Object.entries(ask.configs).map(([name, value]) => ({ name, value }))
      await admin.createTopics({ topics: [ask.topic], partitions: ask.partitions, replicas: 1, configs })
      return null
    }
    case 'grow':
      await admin.createPartitions({ topics: [{ name: ask.topic, count: ask.partitions }] })
      return null
    case 'delete':
      await admin.deleteTopics({ topics: [ask.topic] })
      return null
    case 'topics': {
      const topics = await admin.listTopics()
      const { topics: found } = await admin.metadata({ topics, forceUpdate: true })
      return Object.fromEntries([...found].map(([name, one]) => [name, one.partitionsCount]))
    }
    case 'ends':
      return [await offsetsAt(ask, admin, -2), await offsetsAt(ask, admin, -1)]
    case 'offset_at':
      return await offsetsAt(ask, admin, ask.timestamp)
    case 'config': {
      const [found] = await admin.describeConfigs({ resources: [{ ...resource, configurationKeys: [ask.name] }] })
      return found.configs.find(one => one.name === ask.name).value
    }
    case 'set_config': {
      const configs = [{ name: ask.name, configOperation: 0, value: ask.value }]
      await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs }] })
      return null
    }
    case 'committed': {
      const [found] = await admin.listConsumerGroupOffsets({ groups: [ask.group] })
      const topic = found.topics.find(one => one.name === ask.topic)
      const offset = Number(topic?.partitions.find(one => one.partitionIndex === 0)?.committedOffset ?? -1)
      return offset < 0 ? null : offset
    }
  }
  throw new Error(`no verb ${ask.verb}`)
}

async function answer (ask) {
  switch (ask.verb) {
    case 'produce': return produce(ask)
    case 'transact': return transact(ask)
    case 'read': return read(ask)
    case 'join': return join(ask)
    case 'poll': return poll()
    case 'owned': return owned()
    case 'commit': return commit()
    case 'leave': await member.close(true); return null
  }
  const admin = new Admin(options(ask))
  try {
    return await administer(ask, admin)
  } finally {
    await admin.close()
  }
}

await converse(answer)
