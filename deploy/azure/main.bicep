// Azure Container Apps: NATS and three members of a hive, each with storage that outlives it, and, with `serviceBus`,
// a topic of Service Bus with a subscription for each member.
//   az deployment group create -g GROUP -f deploy/azure/main.bicep -p image=REGISTRY/skep:TAG
// It was written from the reference and has not been deployed.
@description('The image built from deploy/Dockerfile, in a registry that the environment may pull from.')
param image string

@description('Where everything stands.')
param location string = resourceGroup().location

@description('The members of the hive.')
param members array = ['ana', 'bob', 'cy']

@description('Make a topic of Service Bus, too; docs/how-to/hive-over-nats.md says how a hive uses it.')
param serviceBus bool = false

var name = 'skep${uniqueString(resourceGroup().id)}'
var manifest = 'name: team\ntopology: sharded\nstore: banks\nbus: nats://nats:4222\nagents: [${join(map(members, m => '{name: ${m}}'), ', ')}]\n'

resource logs 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: '${name}-logs'
  location: location
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: 30
  }
}

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: name
  location: location
  sku: { name: 'Premium_LRS' }
  kind: 'FileStorage'
  properties: {
    // SQLite needs the locks of NFS 4.1; SMB shares lose them.
    supportsHttpsTrafficOnly: false
    minimumTlsVersion: 'TLS1_2'
    networkAcls: { defaultAction: 'Deny', virtualNetworkRules: [{ id: network.properties.subnets[0].id }] }
  }
}

resource files 'Microsoft.Storage/storageAccounts/fileServices@2023-05-01' = {
  parent: storage
  name: 'default'
}

resource shares 'Microsoft.Storage/storageAccounts/fileServices/shares@2023-05-01' = [for disk in concat(members, ['nats']): {
  parent: files
  name: disk
  properties: { enabledProtocols: 'NFS', shareQuota: 100 }
}]

resource network 'Microsoft.Network/virtualNetworks@2024-01-01' = {
  name: '${name}-net'
  location: location
  properties: {
    addressSpace: { addressPrefixes: ['10.20.0.0/16'] }
    subnets: [
      {
        name: 'apps'
        properties: {
          addressPrefix: '10.20.0.0/23'
          serviceEndpoints: [{ service: 'Microsoft.Storage' }]
          delegations: [{ name: 'apps', properties: { serviceName: 'Microsoft.App/environments' } }]
        }
      }
    ]
  }
}

resource environment 'Microsoft.App/managedEnvironments@2024-03-01' = {
  name: '${name}-env'
  location: location
  properties: {
    vnetConfiguration: { infrastructureSubnetId: network.properties.subnets[0].id, internal: true }
    workloadProfiles: [{ name: 'Consumption', workloadProfileType: 'Consumption' }]
    appLogsConfiguration: {
      destination: 'log-analytics'
      logAnalyticsConfiguration: { customerId: logs.properties.customerId, sharedKey: logs.listKeys().primarySharedKey }
    }
  }
}

resource mounts 'Microsoft.App/managedEnvironments/storages@2024-10-02-preview' = [for (disk, i) in concat(members, ['nats']): {
  parent: environment
  name: disk
  properties: {
    nfsAzureFile: {
      server: '${storage.name}.file.${az.environment().suffixes.storage}'
      shareName: '/${storage.name}/${disk}'
      accessMode: 'ReadWrite'
    }
  }
  dependsOn: [shares[i]]
}]

resource nats 'Microsoft.App/containerApps@2024-03-01' = {
  name: 'nats'
  location: location
  properties: {
    environmentId: environment.id
    configuration: { ingress: { external: false, transport: 'tcp', targetPort: 4222, exposedPort: 4222 } }
    template: {
      containers: [
        {
          name: 'nats'
          image: 'nats:2.12'
          args: ['-js', '-sd', '/data']
          resources: { cpu: json('0.5'), memory: '1Gi' }
          volumeMounts: [{ volumeName: 'data', mountPath: '/data' }]
        }
      ]
      scale: { minReplicas: 1, maxReplicas: 1 }
      volumes: [{ name: 'data', storageType: 'NfsAzureFile', storageName: 'nats' }]
    }
  }
  dependsOn: [mounts]
}

resource apps 'Microsoft.App/containerApps@2024-03-01' = [for member in members: {
  name: member
  location: location
  properties: {
    environmentId: environment.id
    configuration: { secrets: [{ name: 'hive-yaml', value: manifest }] }
    template: {
      containers: [
        {
          name: 'skep'
          image: image
          args: ['hive', 'serve', '--file', '/etc/skep/hive-yaml', '--member', member]
          resources: { cpu: json('0.5'), memory: '1Gi' }
          volumeMounts: [
            { volumeName: 'data', mountPath: '/etc/skep/banks' }
            { volumeName: 'manifest', mountPath: '/etc/skep' }
          ]
        }
      ]
      scale: { minReplicas: 1, maxReplicas: 1 }
      volumes: [
        { name: 'data', storageType: 'NfsAzureFile', storageName: member }
        { name: 'manifest', storageType: 'Secret', secrets: [{ secretRef: 'hive-yaml', path: 'hive-yaml' }] }
      ]
    }
  }
  dependsOn: [nats, mounts]
}]

resource brokers 'Microsoft.ServiceBus/namespaces@2022-10-01-preview' = if (serviceBus) {
  name: '${name}-bus'
  location: location
  sku: { name: 'Standard', tier: 'Standard' }
}

resource topic 'Microsoft.ServiceBus/namespaces/topics@2022-10-01-preview' = if (serviceBus) {
  parent: brokers
  name: 'hive'
}

resource subscriptions 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2022-10-01-preview' = [for member in members: if (serviceBus) {
  parent: topic
  name: member
  properties: { defaultMessageTimeToLive: 'PT1M' }
}]
