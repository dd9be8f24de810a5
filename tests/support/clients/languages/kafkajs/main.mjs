// KafkaJS, spoken to in lines of JSON as tests/support/clients/spoken.py says.

import { readFileSync } from 'node:fs'
import kafkajs from 'kafkajs'
import { converse } from './spoken.mjs'

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs

const bootstrap = process.argv[2]
let member = null
let owned = []
let pending = [] // values that came and were not asked for
let passed = new Map() // partition -> offset behind the last that was given out

function kafka (ask) {
  const config = { brokers: [bootstrap], logLevel: logLevel.NOTHING }
  if (ask.authority) {
    config.ssl = { ca: [readFileSync(ask.authority, 'utf-8')] }
    config.sasl = { mechanism: 'scram-sha-256', username: ask.user, password: ask.password }
  }
  return new Kafka(config)
}

const partitioner = () => ({ message }) => message.partition

function messages (ask) {
  return ask.records.map(row => ({
    key: row.key,
    value: row.value,
    partition: row.partition,
    headers: Object.fromEntries(row.headers),
    timestamp: row.timestamp === undefined ? undefined : String(row.timestamp)
  }))
}

const codec = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }

async function produce (ask) {
  const producer = kafka(ask).producer({ createPartitioner: partitioner, idempotent: ask.idempotent ?? false })
  await producer.connect()
  await producer.send({
    topic: ask.topic,
    messages: messages(ask),
    acks: ask.acks ?? -1,
    compression: codec[ask.codec ?? 'none']
  })
  await producer.disconnect()
  return null
}

async function transact (ask) {
  const producer = kafka(ask).producer({
    createPartitioner: partitioner,
    transactionalId: ask.id,
    idempotent: true,
    maxInFlightRequests: 1
  })
  await producer.connect()
  const transaction = await producer.transaction()
  await transaction.send({ topic: ask.topic, messages: messages(ask) })
  if (ask.offsets) {
    const partitions = [{ partition: 0, offset: String(ask.offsets.offset) }]
    await transaction.sendOffsets({
      consumerGroupId: ask.offsets.group,
      topics: [{ topic: ask.offsets.topic, partitions }]
    })
  }
  await (ask.commit ? transaction.commit() : transaction.abort())
  await producer.disconnect()
  return null
}

// The library reads in groups only: a group of its own, and a seek.
async function read (ask) {
  const consumer = kafka(ask).consumer({ groupId: `read-${process.pid}-${Date.now()}` })
  await consumer.connect()
  await consumer.subscribe({ topics: [ask.topic], fromBeginning: true })
  const rows = []
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (partition !== ask.partition || BigInt(message.offset) < BigInt(ask.offset)) return
        rows.push({
          offset: Number(message.offset),
          partition,
          key: message.key && message.key.toString(),
          value: message.value.toString(),
          headers: Object.entries(message.headers).map(([name, value]) => [name, value.toString()]),
          timestamp: Number(message.timestamp)
        })
        if (rows.length === ask.count) resolve()
      }
    }).catch(reject)
    consumer.seek({ topic: ask.topic, partition: ask.partition, offset: String(ask.offset) })
  })
  await consumer.disconnect()
  return rows
}

async function join (ask) {
  member = kafka(ask).consumer({
    groupId: ask.group,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
    maxWaitTimeInMs: 100,
    readUncommitted: !ask.committed_only
  })
  member.on(member.events.GROUP_JOIN, ({ payload }) => {
    owned = payload.memberAssignment[ask.topic] ?? []
    pending = []
  })
  await member.connect()
  await member.subscribe({ topics: [ask.topic], fromBeginning: true })
  await member.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      pending.push({ topic, partition, offset: BigInt(message.offset) + 1n, value: message.value.toString() })
    }
  })
  return null
}

async function poll () {
  if (pending.length === 0) await new Promise(resolve => setTimeout(resolve, 50))
  const came = pending
  pending = []
  for (const one of came) passed.set(one.partition, one)
  return came.map(one => one.value)
}

async function commit () {
  await member.commitOffsets([...passed.values()].map(one => (
    { topic: one.topic, partition: one.partition, offset: String(one.offset) })))
  return null
}

async function administer (ask, admin) {
  const resource = { type: ConfigResourceTypes.TOPIC, name: ask.topic }
  switch (ask.verb) {
    case 'create': {
      const configEntries = Object.entries(ask.configs).map(([name, value]) => ({ name, value }))
      const topics = [{ topic: ask.topic, numPartitions: ask.partitions, configEntries }]
      if (!await admin.createTopics({ topics })) throw new Error('it is there')
      return null
    }
    case 'grow':
      await admin.createPartitions({ topicPartitions: [{ topic: ask.topic, count: ask.partitions }] })
      return null
    case 'delete':
      await admin.deleteTopics({ topics: [ask.topic] })
      return null
    case 'topics': {
      const { topics } = await admin.fetchTopicMetadata()
      return Object.fromEntries(topics.map(one => [one.name, one.partitions.length]))
    }
    case 'ends': {
      const found = (await admin.fetchTopicOffsets(ask.topic)).find(one => one.partition === ask.partition)
      return [Number(found.low), Number(found.high)]
    }
    case 'offset_at': {
      const found = await admin.fetchTopicOffsetsByTimestamp(ask.topic, ask.timestamp)
      return Number(found.find(one => one.partition === ask.partition).offset)
    }
    case 'config': {
      const { resources } = await admin.describeConfigs({ resources: [resource] })
      return resources[0].configEntries.find(one => one.configName === ask.name).configValue
    }
    case 'set_config': {
      const configEntries = [{ name: ask.name, value: ask.value }]
      await admin.alterConfigs({ resources: [{ ...resource, configEntries }] })
      return null
    }
    case 'committed': {
      const topics = await admin.fetchOffsets({ groupId: ask.group, topics: [ask.topic] })
      const offset = Number(topics[0].partitions[0].offset)
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
    case 'owned': return owned
    case 'commit': return commit()
    case 'leave': await member.disconnect(); return null
  }
  const admin = kafka(ask).admin()
  await admin.connect()
  try {
    return await administer(ask, admin)
  } finally {
    await admin.disconnect()
  }
}

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'

await converse(answer)
